"""The capabilities: what can be proposed to a substrate. Importing this registers them."""

from baobab.tools.substrate.capabilities import decisions

MODULES = (decisions,)
