"""Suggestions that users and agents send to the operators."""

from baobab.tools.suggestions import jobs, tools
from baobab.tools.suggestions.toolset import suggestions

TOOLSETS = (suggestions,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    tools,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
