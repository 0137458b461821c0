"""Which keys hold the app's own texts: those below a marked beginning, unless users or runs that had read text from
outside have written them since.
"""

from collections.abc import Iterable

from sqlalchemy import delete, select

from baobab.storage.cache import Cache
from baobab.storage.sql.database import Execute
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import Call, Services
from baobab.tools.core.guard.own_prefixes import is_covered, list_prefixes
from baobab.tools.core.guard.read_text import ReadText
from baobab.tools.core.guard.texts import find_writer
from baobab.tools.kv.tables import outside_keys, own_prefixes

MARKED = "kv_own_text"
"""The notice that the marked beginnings of an app have changed."""


class MarkedKeys:
    """The marked beginnings of apps, cached in memory. A change in any process clears an app's within half a second."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._prefixes: Cache[str, tuple[str, ...]] = Cache(self._load, services.clock)
        services.notices.subscribe(MARKED, self._prefixes.forget)
        services.notices.subscribe("app", self._prefixes.forget)

    async def get(self, app_id: str) -> tuple[str, ...]:
        return await self._prefixes.get(app_id) or ()

    async def _load(self, app_id: str) -> tuple[str, ...]:
        app = await self._services.directory.app(app_id)
        async with self._services.stores_of(app.region).database.reading() as connection:
            rows = await list_prefixes(connection.execute, own_prefixes, app_id)
        return tuple(row.prefix for row in rows)


async def keep_outside_keys(call: Call, *keys: str) -> None:
    """Keeps, before they are written, which marked keys get text from outside.

    It is committed at once: a server that is killed before the write leaves a key that counts as outside.
    """
    if find_writer(call) != "outside":
        return
    app_id = call.require_app().id
    prefixes = await call.services.of(MarkedKeys).get(app_id)
    rows = [{"app_id": app_id, "key": key} for key in dict.fromkeys(keys) if is_covered(key, prefixes)]
    if rows:
        database = call.stores.database
        async with database.writing_unit(lock=app_id) as unit:
            await unit.execute(build_upsert(database.dialect, outside_keys).on_conflict_do_nothing(), rows)


async def note_keys(call: Call, keys: Iterable[str]) -> None:
    """Notes whose texts keys and their values are, for the run that has read them."""
    if call.context.step is None:
        return
    app_id, keys = call.require_app().id, list(keys)
    async with call.stores.database.reading() as connection:
        # Not those of the cache: a mark may have ended a moment ago.
        prefixes = [row.prefix for row in await list_prefixes(connection.execute, own_prefixes, app_id)]
        covered_keys = [key for key in keys if is_covered(key, prefixes)]
        conditions = (outside_keys.c.app_id == app_id, outside_keys.c.key.in_(covered_keys))
        written_keys = set((await connection.execute(select(outside_keys.c.key).where(*conditions))).scalars())
    own_keys = set(covered_keys) - written_keys
    call.note_texts(*(ReadText("key", key, key in own_keys) for key in keys))


async def forget_outside_keys(call: Call, execute: Execute, prefix: str) -> None:
    """Forgets which keys come from outside, because an admin says anew that these are the app's own."""
    app_id = call.require_app().id
    conditions = (outside_keys.c.app_id == app_id, outside_keys.c.key.startswith(prefix, autoescape=True))
    await execute(delete(outside_keys).where(*conditions))
