"""Every key-value tool, in the order in which catalogues show them."""

from baobab.tools.kv import administration, batches, entries, exposing
from baobab.tools.kv.toolset import kv

__all__ = ["administration", "batches", "entries", "exposing", "kv"]
