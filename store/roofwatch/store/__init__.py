"""Ingest, schema, migrations and queries over SQL, and the gRPC server in front of them."""
