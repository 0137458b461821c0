"""The capabilities: what can be proposed to a substrate. Importing this registers them."""

from baobab.tools.substrate.capabilities import (
    artifacts,
    decisions,
    entities,
    forgetting,
    messages,
    principles,
    reverts,
)

MODULES = (artifacts, decisions, entities, forgetting, messages, principles, reverts)
