"""OAuth: how an MCP client gets an API key with a person's consent."""

from baobab.tools.oauth import jobs
from baobab.tools.oauth.tools import clients, consent, credentials, programs
from baobab.tools.oauth.toolset import oauth

TOOLSETS = (oauth,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    clients,
    consent,
    credentials,
    programs,
    jobs,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
