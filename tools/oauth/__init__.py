"""OAuth: how an MCP client gets an API key with a person's consent."""

from baobab.tools.oauth import jobs, tools
from baobab.tools.oauth.toolset import oauth

TOOLSETS = (oauth,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    jobs,
    tools,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
