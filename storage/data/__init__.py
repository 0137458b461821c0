"""Stores of apps' tables: a SQLite file for each app, or a Postgres schema for each."""
