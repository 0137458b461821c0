"""Approvals: calls that wait for a person, and that person's word on them."""

from baobab.tools.approvals import gauges, jobs, tools
from baobab.tools.approvals.toolset import approvals

TOOLSETS = (approvals,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    gauges,
    jobs,
    tools,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
