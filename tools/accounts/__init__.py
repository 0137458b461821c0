"""Accounts of people who build apps: signing up, signing in, and the sessions in between."""

from baobab.tools.accounts import jobs
from baobab.tools.accounts.tools import accounts as of_account
from baobab.tools.accounts.tools import deletion, mailed_links
from baobab.tools.accounts.toolset import accounts

TOOLSETS = (accounts,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (of_account, mailed_links, deletion, jobs)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
