"""The kinds of jobs that runs enqueue, each with the argument `run_id`; and the events that they emit."""

ADVANCE = "agents_advance"
"""Executes a run until it ends or pauses."""
WEBHOOK = "agents_webhook"
"""Sends the webhook of a run that has ended, or has paused: then it has the argument `approvals`, too."""
ORPHANS = "agents_orphans"
"""Cancels the child runs of a run that has ended."""

RUN_STARTED, RUN_PAUSED, RUN_ENDED = "run.started", "run.paused", "run.ended"
"""The events of runs that are no steps of others, for triggers."""
