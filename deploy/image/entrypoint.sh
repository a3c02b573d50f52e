#!/bin/sh
# Passwords come as files (compose secrets) and go where no list of processes shows them. libpq looks for PGPASSWORD. Where
# a password must stand in the URL, ROOFWATCH_DB_URL has the word PASSWORD in its place, and ROOFWATCH_DB is made of it.
set -eu
if [ -n "${PGPASSWORD_FILE:-}" ]; then
  PGPASSWORD="$(cat "$PGPASSWORD_FILE")"
  export PGPASSWORD
fi
if [ -n "${ROOFWATCH_DB_PASSWORD_FILE:-}" ]; then
  ROOFWATCH_DB="${ROOFWATCH_DB_URL%%PASSWORD@*}$(cat "$ROOFWATCH_DB_PASSWORD_FILE")@${ROOFWATCH_DB_URL#*PASSWORD@}"
  export ROOFWATCH_DB
fi
exec "$@"
