"""The substrate: the memory and the action ledger of an organisation."""

from baobab.tools.substrate import jobs
from baobab.tools.substrate.capabilities import MODULES as CAPABILITIES
from baobab.tools.substrate.tools import (
    actions,
    changes,
    duplicates,
    entities,
    links,
    memory,
    outbox,
    policy,
    receipts,
    rules,
    settings,
    stream,
    transfer,
)
from baobab.tools.substrate.toolset import substrate

TOOLSETS = (substrate, links.substrate_links)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    actions,
    changes,
    duplicates,
    entities,
    jobs,
    links,
    memory,
    outbox,
    policy,
    receipts,
    rules,
    settings,
    stream,
    transfer,
    *CAPABILITIES,
)
"""Importing these registers the tools, jobs and capabilities."""
