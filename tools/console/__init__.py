"""The console's sessions: who is signed in to it, from where, and until when."""

from baobab.tools.console import jobs, tools
from baobab.tools.console.toolset import console

TOOLSETS = (console,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (jobs, tools)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
