"""Every key-value tool: importing their files registers them."""

from baobab.tools.kv import administration, batches, entries, exposing
from baobab.tools.kv.toolset import kv

__all__ = ["administration", "batches", "entries", "exposing", "kv"]
