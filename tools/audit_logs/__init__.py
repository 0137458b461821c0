"""The audit log, to be read."""
