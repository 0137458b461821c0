"""Vectors of unit length: their column type, and exact search in memory-mapped files."""
