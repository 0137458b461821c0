"""Callers, their credentials, and what these allow."""
