#!/bin/sh
# Epilog (slurm.conf: Epilog=/etc/slurm/epilog.d/*): as root, on every node of a job, once it has ended.
MAP="${ROOFWATCH_JOB_MAP:-/run/roofwatch/jobs}"
case "${SLURM_JOB_ID:-}" in '' | *[!0-9]*) exit 0 ;; esac
rm -f "$MAP/$SLURM_JOB_ID" "$MAP/.$SLURM_JOB_ID" 2>/dev/null
exit 0
