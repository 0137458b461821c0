"""Conditions and expressions on rows, as trees, and their SQL for both databases."""
