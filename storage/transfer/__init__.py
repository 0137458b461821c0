"""Carrying a whole installation from files to servers: its rows, its key-value store, its objects."""
