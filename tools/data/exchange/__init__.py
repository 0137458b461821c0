"""Rows as files and from files, and copies of an app's tables from one store to another."""
