"""The key-value engine on Postgres."""
