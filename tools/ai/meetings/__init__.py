"""Meeting bots: they join video calls, record and transcribe them; the tools start, read and stop them."""

from baobab.tools.ai.meetings import jobs
from baobab.tools.ai.meetings.tools import app_bots, calendars, gateway_bots, hooks, transcripts, webhooks
from baobab.tools.ai.meetings.toolset import gateway_meetings, meeting_accounts, meetings

TOOLSETS = (
    meetings,
    gateway_meetings,
    meeting_accounts,
)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    app_bots,
    calendars,
    gateway_bots,
    hooks,
    transcripts,
    webhooks,
)
"""Importing these modules registers the tools, jobs and gauges of the toolsets."""
