"""The kinds of jobs that runs ask for. Each has the argument `run_id`."""

ADVANCE = "agents_advance"
"""Makes a segment."""
WEBHOOK = "agents_webhook"
"""Tells whoever asked for it that a run has ended."""
ORPHANS = "agents_orphans"
"""Has the runs end that were steps of a run which has ended."""
