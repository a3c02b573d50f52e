#!/bin/bash
# A role for dashboards that reads what the store keeps and changes nothing. The image runs this once, on an empty volume;
# on a database that is there already: POSTGRES_USER=roofwatch POSTGRES_DB=roofwatch READER_PASSWORD_FILE=… ./10-reader.sh
set -eu
psql --no-psqlrc --set ON_ERROR_STOP=1 --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  --set owner="$POSTGRES_USER" --set database="$POSTGRES_DB" --set password="$(cat "$READER_PASSWORD_FILE")" <<'SQL'
CREATE ROLE roofwatch_reader LOGIN PASSWORD :'password' CONNECTION LIMIT 20;
ALTER ROLE roofwatch_reader SET default_transaction_read_only = on;
ALTER ROLE roofwatch_reader SET statement_timeout = '30s';
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO roofwatch_reader;
GRANT USAGE ON SCHEMA public TO roofwatch_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO roofwatch_reader;
-- The store makes its tables later, and new ones with new versions.
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA public GRANT SELECT ON TABLES TO roofwatch_reader;
SQL
