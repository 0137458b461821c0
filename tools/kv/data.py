"""An app's key-value store as a whole: what is moved with the app, and goes with it."""

from baobab.tools.core.stores import Stores

_ENTRIES_AT_ONCE = 200
"""At 256 KB each, some 50 MB are in memory at the very most."""


class KvData:
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
