"""Accounts of people who build apps: signing up, signing in, and the sessions in between."""

from baobab.tools.accounts import tools
from baobab.tools.accounts.tools import accounts

TOOLSETS = (accounts,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (tools,)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
