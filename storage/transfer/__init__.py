"""Moves a whole installation between files and servers: its rows, its key-value store and its objects."""
