"""The family of an app's tables, and what moving and removing an app need to know of them."""

from baobab.storage.database import Unit
from baobab.tools.core.errors import AppMigrating
from baobab.tools.core.stores import Stores
from baobab.tools.core.toolset import Toolset
from baobab.tools.data.copying import copy_tables
from baobab.tools.data.envelope import TablesEnvelope


class AppTables:
    """An app's tables as a whole: what is moved with the app, and goes with it."""

    async def freeze(self, stores: Stores, app_id: str) -> None:
        await _set_frozen(stores, app_id, frozen=True)

    async def thaw(self, stores: Stores, app_id: str) -> None:
        await _set_frozen(stores, app_id, frozen=False)

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        await copy_tables(source.data, dest.data, app_id)

    async def erase(self, stores: Stores, app_id: str) -> None:
        # Where the rows are removed in one unit of work, its database stands for it.
        unit = getattr(stores.database, "unit", None)
        await stores.data.erase(app_id, unit if isinstance(unit, Unit) else None)


async def _set_frozen(stores: Stores, app_id: str, *, frozen: bool) -> None:
    if not await stores.data.exists(app_id):
        return
    table = stores.data.name_table(app_id, "_catalogue")
    text = f"UPDATE {table} SET frozen = ?"  # noqa: S608 - a quoted name
    await stores.data.write(app_id, lambda statements: statements.rows(text, int(frozen)))


data = Toolset(
    "data",
    "The app's own tables: rows, schema, and policies that say who may reach which rows.",
    base="/v1/{app_id}",
    raises=(AppMigrating,),
    data=AppTables(),
    envelope=TablesEnvelope(),
)
