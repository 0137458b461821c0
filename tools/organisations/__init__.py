"""Organisations: who works together, in which role, and how others are invited."""
