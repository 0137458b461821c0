"""Agents: graphs that call models and tools, and their runs, which can wait for people."""

from baobab.tools.agents import gauges, jobs
from baobab.tools.agents.tools import agents as agents_tools
from baobab.tools.agents.tools import (
    deletion,
    forks,
    interrupts,
    public,
    runs,
    threads,
    tool_servers,
    validation,
    webhooks,
)
from baobab.tools.agents.toolset import agents

TOOLSETS = (agents,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    gauges,
    jobs,
    agents_tools,
    validation,
    deletion,
    forks,
    interrupts,
    public,
    runs,
    threads,
    tool_servers,
    webhooks,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
