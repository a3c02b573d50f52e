#!/bin/sh
# TaskProlog (slurm.conf): each line "export NAME=VALUE" that it prints goes into the environment of the task. Every Python
# of the job then attaches when it imports torch. A job submitted with ROOFWATCH_OFF=1 is left alone.
SOCKET="${ROOFWATCH_SOCKET:-/run/roofwatch/agent.sock}"
HOOK="${ROOFWATCH_HOOK:-/opt/roofwatch/hook/inject}" # the folder roofwatch/hook/inject of the installed roofwatch-hook
if [ -z "${ROOFWATCH_OFF:-}" ] && [ -S "$SOCKET" ] && [ -d "$HOOK" ]; then
  echo "export ROOFWATCH_SOCKET=$SOCKET"
  echo "export PYTHONPATH=$HOOK${PYTHONPATH:+:$PYTHONPATH}"
fi
exit 0
