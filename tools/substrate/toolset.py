"""The toolset of the substrate."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone
from baobab.tools.core.app_events import AppEvent

MEMORY_CHANGED = "memory.changed"
_SAMPLE = {
    "organization_id": "5b2f7c9e-0000-4000-8000-000000000000",
    "tables": ["decisions"],
    "changes": [{"table": "decisions", "change": "insert", "id": "dec_01KAVF3T9H6Q0Y1M3J7Z5N8W2K"}],
    "count": 1,
}

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
    events=(
        AppEvent(
            MEMORY_CHANGED,
            MEMORY_CHANGED,
            "Something changed in the memory that the app is linked to.",
            _SAMPLE,
            "organization_id",
        ),
    ),
)
