"""Where the tables of apps are: a SQLite file for each app, or a Postgres schema for each."""
