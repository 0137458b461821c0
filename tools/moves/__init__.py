"""Moving apps from one region to another."""

from baobab.tools.moves import gauges, jobs, tools
from baobab.tools.moves.toolset import moves

TOOLSETS = (moves,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    gauges,
    jobs,
    tools,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
