"""Organisations: who works together, in which role, and how others are invited."""

from baobab.tools.organisations.tools import invitations, members, organisations
from baobab.tools.organisations.toolset import organisations as toolset

TOOLSETS = (toolset,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (organisations, members, invitations)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
