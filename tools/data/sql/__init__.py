"""Statements of SQL that an app's own code sends: read as trees, and written anew for the database and the caller."""
