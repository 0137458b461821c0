"""What a clone of an app has of its models: the defaults, and no key of a provider."""

from collections.abc import Iterable
from typing import Any

from baobab.tools.ai.tables import app_ai
from baobab.tools.core.app_clones import Ability, ClonedRows, CloneRule, Cloning, Row, never_clone


def _copy_settings(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "byok_key": None, "byok_provider": None, "byok_last4": None, "updated_at": cloning.started_at}


def _list_abilities(row: Row) -> Iterable[Ability]:
    if row["byok_provider"] is not None:
        says = f"It calls models with a key of its own for {row['byok_provider']}."
        yield Ability("model_key", row["byok_provider"], says, tool="ai_config_update")


CLONES: tuple[CloneRule, ...] = (
    ClonedRows(
        app_ai,
        "replaying_config",
        "the models that the app uses by default, without keys of providers",
        _copy_settings,
        list_abilities=_list_abilities,
        app_column="id",
        is_home=True,
    ),
    *never_clone("answers of models", "response_cache"),
)
MEDIA = never_clone("history", "generation_jobs")
