#!/bin/sh
# A password comes as a file (a compose secret); libpq looks for it in PGPASSWORD, where no list of processes shows it.
set -eu
if [ -n "${PGPASSWORD_FILE:-}" ]; then
  PGPASSWORD="$(cat "$PGPASSWORD_FILE")"
  export PGPASSWORD
fi
exec "$@"
