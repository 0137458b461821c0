"""The toolset of the key-value store."""

from collections.abc import Mapping

from baobab.tools.core import AppMigrating, Audit, RateLimited, Toolset, Unavailable
from baobab.tools.core.app_events import KEY_CHANGED, AppEvent
from baobab.tools.core.envelopes import Envelope
from baobab.tools.core.stores import Stores
from baobab.tools.kv.clones import CLONES
from baobab.tools.kv.errors import KvEnvelope
from baobab.tools.kv.limits import KV_OPERATIONS
from baobab.tools.kv.tables import APP_TABLES

KV_ENVELOPE: Envelope = KvEnvelope()
WRITTEN = Audit("kv.write", category="data", resource="key", tallied=True)


_ENTRIES_AT_ONCE = 200
"""At 256 KB each, some 50 MB are in memory at the very most."""


class KvData:
    """An app's key-value store as a whole: what is moved with the app, and goes with it."""

    async def freeze(self, stores: Stores, app_id: str) -> None:
        await stores.kv.freeze(app_id)

    async def thaw(self, stores: Stores, app_id: str) -> None:
        await stores.kv.thaw(app_id)

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        after: str | None = None
        while entries := await source.kv.export(app_id, after, _ENTRIES_AT_ONCE):
            await dest.kv.load(app_id, entries)
            after = entries[-1].key

    async def erase(self, stores: Stores, app_id: str) -> None:
        await stores.kv.erase(app_id)

    async def count(self, stores: Stores, app_id: str) -> Mapping[str, int]:
        usage = await stores.kv.usage(app_id)
        return {"keys": usage.keys, "bytes": usage.bytes}


kv = Toolset(
    "kv",
    "The app's key-value store.",
    base="/v1/{app_id}/kv",
    envelope=KV_ENVELOPE,
    raises=(RateLimited, Unavailable, AppMigrating),
    keeps_failures="key",
    app_tables=APP_TABLES,
    clones=CLONES,
    data=KvData(),
    limit=KV_OPERATIONS,
    events=(
        AppEvent(
            KEY_CHANGED,
            KEY_CHANGED,
            "A value was stored under a key, or the key was deleted.",
            {"key": "order:17", "change": "stored", "value": {"status": "paid"}},
            "key",
            has_prefix=True,
        ),
    ),
)
