"""Approvals: calls that wait until a person has decided."""
