"""The key-value store of an app: entries, counters, compare-and-swap, and the rules that expose keys to end users."""

from baobab.tools.kv import jobs
from baobab.tools.kv.tools import administration, batches, entries, expose_rules, own_text
from baobab.tools.kv.toolset import kv

TOOLSETS = (kv,)
"""The toolsets of this domain, in the order in which catalogues show them."""
MODULES = (
    administration,
    batches,
    entries,
    expose_rules,
    own_text,
    jobs,
)
"""Importing these registers the tools, jobs and gauges of the toolsets."""
