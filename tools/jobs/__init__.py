"""Jobs: what an organisation's calls have left to be done, and what has failed of it."""

from baobab.tools.jobs import tools
from baobab.tools.jobs.toolset import jobs

TOOLSETS = (jobs,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (tools,)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
