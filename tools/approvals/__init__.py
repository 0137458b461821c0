"""Approvals: calls that wait for a person, and that person's word on them."""
