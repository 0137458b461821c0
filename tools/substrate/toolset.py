"""The toolset of the substrate."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone

substrate = Toolset(
    "substrate",
    "The memory and the action ledger of an organisation: what was decided, promised and learned, and undo.",
    base="/v1/me/substrate",
    clones=never_clone(
        "memory of the other organisation",
        "substrate_action_ledger",
        "substrate_entities",
        "substrate_outbox_targets",
        "substrate_source_artifacts",
    ),
)
