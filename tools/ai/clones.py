"""What a clone of an app has of its models: the defaults, and no key of a provider."""

from typing import Any

from baobab.tools.ai.tables import app_ai
from baobab.tools.core.app_clones import ClonedRows, CloneRule, Cloning, never_clone


def _copy_settings(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    if row["byok_provider"] is not None:
        cloning.warn(f"The template calls models with its own key for {row['byok_provider']}, which is not copied.")
    return {**row, "byok_key": None, "byok_provider": None, "byok_last4": None, "updated_at": cloning.started_at}


CLONES: tuple[CloneRule, ...] = (
    ClonedRows(
        app_ai,
        "replaying_config",
        "the models that the app uses by default, without keys of providers",
        _copy_settings,
        app_column="id",
        is_home=True,
    ),
    *never_clone("answers of models", "response_cache"),
)
MEDIA = never_clone("history", "generation_jobs")
MEETINGS = (
    *never_clone("history", "meeting_bots", "meeting_usage", "meeting_deliveries", "meeting_calendar_events"),
    *never_clone("credentials", "meeting_settings", "meeting_calendars"),
)
