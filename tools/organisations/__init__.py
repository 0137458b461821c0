"""Organisations: who works together, in which role, and how others are invited."""

from baobab.tools.organisations import tools
from baobab.tools.organisations.tools import organisations

TOOLSETS = (organisations,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (tools,)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
