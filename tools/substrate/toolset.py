"""The toolset of the substrate."""

from baobab.tools.core.toolset import Toolset

substrate = Toolset(
    "substrate",
    "The memory and the action ledger of an organisation: what was decided, promised and learned, and undo.",
    base="/v1/me/substrate",
)
