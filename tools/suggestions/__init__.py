"""Suggestions: what users and agents wish for."""
