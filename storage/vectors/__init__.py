"""Vectors of unit length: how rows hold them, and exact search in files that a process maps into its memory."""
