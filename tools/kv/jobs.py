"""The jobs of the key-value store: what is told of keys whose write was not seen to its end (telling.py)."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from baobab.storage.sql.database import Unit
from baobab.tools.core import AppNotFound, Job, Services
from baobab.tools.core.app_events import KEY_CHANGED
from baobab.tools.core.auth.directory import App
from baobab.tools.kv.toolset import kv


@kv.job(drop=True)
async def kv_tell_later(job: Job, app_id: str, keys: list[str], origin: dict[str, Any]) -> None:
    """Tell of keys whose write was not seen to its end, with the values that they have now."""
    services = job.services
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    values = {key: await services.stores_of(app.region).kv.get(app_id, key) for key in keys}
    async with job.writing(last=True) as unit:
        for key, value in values.items():
            await emit_change(unit, services, app, key, value, origin)


async def emit_change(
    unit: Unit, services: Services, app: App, key: str, value: bytes | None, origin: Mapping[str, Any]
) -> None:
    """Tells, as an event, that a key has a value, or, if it is None, that it was deleted."""
    stored_value = None if value is None else from_json(value)
    data = {"key": key, "change": "deleted" if value is None else "stored", "value": stored_value}
    await services.jobs.emit(
        unit, KEY_CHANGED, app_id=app.id, data=data, tenant=app.organisation_id, origin=origin, only_awaited=True
    )
