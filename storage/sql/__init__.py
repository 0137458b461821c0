"""The database: statements over SQLite and Postgres, prepared, and in short transactions."""
