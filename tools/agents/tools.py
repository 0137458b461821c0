"""Every tool and job of agents: importing their files registers them."""

from baobab.tools.agents import agents as agents_made
from baobab.tools.agents import (
    deleting,
    forking,
    gauges,
    interrupting,
    public,
    running,
    tool_servers,
    webhooks,
    working,
)
from baobab.tools.agents.toolset import agents

__all__ = [
    "agents",
    "agents_made",
    "deleting",
    "forking",
    "gauges",
    "interrupting",
    "public",
    "running",
    "tool_servers",
    "webhooks",
    "working",
]
