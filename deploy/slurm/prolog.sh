#!/bin/sh
# Prolog (slurm.conf: Prolog=/etc/slurm/prolog.d/*): as root, on every node of a job, before it starts. Writes who the job
# is, for the agent's --job-map. Never fails: Slurm would drain the node.
MAP="${ROOFWATCH_JOB_MAP:-/run/roofwatch/jobs}"
case "${SLURM_JOB_ID:-}" in '' | *[!0-9]*) exit 0 ;; esac
one_line() { printf '%s' "$1" | tr -d '\n\r'; }
umask 022
mkdir -p "$MAP" 2>/dev/null && {
  printf 'user=%s\n' "$(one_line "${SLURM_JOB_USER:-}")"
  printf 'account=%s\n' "$(one_line "${SLURM_JOB_ACCOUNT:-}")"
  printf 'partition=%s\n' "$(one_line "${SLURM_JOB_PARTITION:-}")"
  printf 'qos=%s\n' "$(one_line "${SLURM_JOB_QOS:-}")"
  printf 'name=%s\n' "$(one_line "${SLURM_JOB_NAME:-}")"
  printf 'cluster=%s\n' "$(one_line "${SLURM_CLUSTER_NAME:-}")"
} >"$MAP/.$SLURM_JOB_ID" 2>/dev/null && mv -f "$MAP/.$SLURM_JOB_ID" "$MAP/$SLURM_JOB_ID" 2>/dev/null
exit 0
