"""Tells the triggers of an app which of its keys have changed, if one waits for keys that begin so.

Values are not stored in the database of events and jobs. So a job is enqueued before they are written, which tells of
the keys if this process ends before it has done so itself. It may then tell of a change that was not made.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from baobab.tools.core import BaobabError, Call
from baobab.tools.core.app_events import KEY_CHANGED
from baobab.tools.core.guard.texts import find_origin
from baobab.tools.kv.jobs import emit_change, kv_tell_later

_LATE_SECONDS = 30.0


class KeyChanges:
    """What a call has done to keys. Nothing is noted of keys for which nobody waits."""

    def __init__(self, awaited_keys: Sequence[str]) -> None:
        self.awaited_keys = frozenset(awaited_keys)
        self.values: list[tuple[str, bytes | None]] = []

    def note(self, key: str, value: bytes | None) -> None:
        """Notes that a key has a value, or, if it is None, that it was deleted."""
        if key in self.awaited_keys:
            self.values.append((key, value))


_NOTHING = KeyChanges(())


@asynccontextmanager
async def tell_changes(call: Call, *keys: str) -> AsyncIterator[KeyChanges]:
    """Yields where to note what has become of keys; triggers are told of it at the end of the block."""
    services, app = call.services, call.require_app()
    awaited_keys = [key for key in keys if services.subscriptions.may_wait_for(app.id, KEY_CHANGED, about=key)]
    awaited_keys = [
        key for key in awaited_keys if await services.subscriptions.waits_for(app.id, KEY_CHANGED, about=key)
    ]
    if not awaited_keys:
        yield _NOTHING
        return
    changes, origin = KeyChanges(awaited_keys), find_origin(call)
    arguments = {"app_id": app.id, "keys": sorted(changes.awaited_keys), "origin": origin}
    async with call.stores.database.writing_unit(lock=None) as unit:
        job_id = await services.jobs.enqueue(
            unit, kv_tell_later.__name__, arguments, delay=_LATE_SECONDS, tenant=app.organisation_id
        )
    # Where it is not known whether it was written, as when the store does not answer, the job tells of the keys.
    refusal: BaobabError | None = None
    try:
        yield changes
    except BaobabError as exc:
        refusal = exc
    async with call.stores.database.writing_unit(lock=None) as unit:
        await services.jobs.withdraw(unit.execute, job_id)
        for key, value in changes.values:
            await emit_change(unit, services, app, key, value, origin)
    if refusal is not None:
        raise refusal
