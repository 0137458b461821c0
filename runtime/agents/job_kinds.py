"""The kinds of jobs that runs enqueue. Each has the argument `run_id`."""

ADVANCE = "agents_advance"
"""Executes a run until it ends or pauses."""
WEBHOOK = "agents_webhook"
"""Sends the webhook of a run that has ended, or has paused: then it has the argument `approvals`, too."""
ORPHANS = "agents_orphans"
"""Cancels the child runs of a run that has ended."""
