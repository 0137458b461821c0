"""The substrate: the memory and the action ledger of an organisation."""

from baobab.tools.substrate import jobs
from baobab.tools.substrate.capabilities import MODULES as CAPABILITIES
from baobab.tools.substrate.tools import (
    actions,
    duplicates,
    entities,
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

TOOLSETS = (substrate,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    actions,
    duplicates,
    entities,
    jobs,
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
