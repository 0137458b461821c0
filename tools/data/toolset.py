"""The toolset of an app's tables, and what moving and deleting an app must do with them."""

import json
from collections.abc import Mapping
from typing import Any

from baobab.storage.database import Unit
from baobab.tools.core.envelopes import Schema, Structured
from baobab.tools.core.errors import AppMigrating, BaobabError
from baobab.tools.core.listing import Listing
from baobab.tools.core.stores import Stores
from baobab.tools.core.toolset import Toolset
from baobab.tools.data.copying import copy_tables, count_rows
from baobab.tools.data.errors import ReservedTable


class TablesEnvelope(Structured):
    """`{error: {...}, code, message, details, hint}`. `code` is Postgres's code of the error if it has one, because
    clients of PostgREST compare it with `23505`. `details` is the text of the error's details, or null.
    """

    name = "TablesError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        body = super().render(error, docs)
        inner = body["error"]
        details = json.dumps(inner["details"], ensure_ascii=False, default=str) if "details" in inner else None
        return {
            **body,
            "code": getattr(error, "sqlstate", inner["code"]),
            "message": inner["message"],
            "details": details,
            "hint": inner["remediation"],
        }

    def schema(self) -> Schema:
        schema = super().schema()
        text = {"type": "string"}
        properties = {
            **schema["properties"],
            "code": text,
            "message": text,
            "details": {"type": ["string", "null"]},
            "hint": text,
        }
        return {**schema, "properties": properties, "required": ["error", "code", "message", "details", "hint"]}


class AppTables:
    """An app's tables as a whole: they move with the app and are deleted with it."""

    async def freeze(self, stores: Stores, app_id: str) -> None:
        await _set_frozen(stores, app_id, is_frozen=True)

    async def thaw(self, stores: Stores, app_id: str) -> None:
        await _set_frozen(stores, app_id, is_frozen=False)

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        await copy_tables(source.data, dest.data, app_id)

    async def erase(self, stores: Stores, app_id: str) -> None:
        # The unit of work that removes the rows has the database, and with it the region.
        unit = getattr(stores.database, "unit", None)
        await stores.data.erase(app_id, unit if isinstance(unit, Unit) else None)

    async def count(self, stores: Stores, app_id: str) -> Mapping[str, int]:
        return {"rows": await count_rows(stores.data, app_id)}


async def _set_frozen(stores: Stores, app_id: str, *, is_frozen: bool) -> None:
    if not await stores.data.exists(app_id):
        return
    table = stores.data.name_table(app_id, "_catalogue")
    text = f"UPDATE {table} SET frozen = ?"
    await stores.data.write(app_id, lambda statements: statements.rows(text, int(is_frozen)))


data = Toolset(
    "data",
    "The app's own tables: rows, schema, and policies that say who may reach which rows.",
    base="/v1/{app_id}",
    raises=(AppMigrating, ReservedTable),
    data=AppTables(),
    envelope=TablesEnvelope(),
)
ROWS = Listing("rows", is_bare=True)
WRITTEN_ROWS = Listing("rows", is_bare=True, sample=10)
