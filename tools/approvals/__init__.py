"""Approvals: calls that wait for a person, and that person's word on them."""

from baobab.tools.approvals import gauges, jobs, tools
from baobab.tools.approvals.inbox import tools as inbox_tools
from baobab.tools.approvals.notices import jobs as notice_jobs
from baobab.tools.approvals.notices.tools import account_settings, channels, messages
from baobab.tools.approvals.notices.toolset import notices
from baobab.tools.approvals.toolset import approvals

TOOLSETS = (approvals, notices)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    gauges,
    jobs,
    tools,
    inbox_tools,
    notice_jobs,
    account_settings,
    channels,
    messages,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
