"""The installation itself: health, regions, guidance for language models."""

from baobab.tools.system import gauges, tools
from baobab.tools.system.toolset import operation, system

TOOLSETS = (system, operation)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    gauges,
    tools,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
