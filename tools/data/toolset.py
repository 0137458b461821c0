"""The toolset of an app's tables, and what moving and deleting an app must do with them."""

import json
from collections.abc import Mapping
from typing import Any

from baobab.storage.sql.database import Unit
from baobab.tools.core import AppMigrating, BaobabError, Toolset
from baobab.tools.core.app_events import ROWS_CHANGED, AppEvent
from baobab.tools.core.envelopes import Schema, Structured
from baobab.tools.core.listing import Listing
from baobab.tools.core.stores import Stores
from baobab.tools.data.errors import ReservedTable
from baobab.tools.data.exchange.cloning import CLONES
from baobab.tools.data.exchange.copying import copy_tables, count_rows


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


_ROW = {"id": 17, "title": "The lamp is broken", "status": "open"}
_CHANGE = {
    "table": "tickets",
    "key": {"id": 17},
    "changed_by": "user",
    "user_id": "5b2f7c9e-0000-4000-8000-000000000000",
}

data = Toolset(
    "data",
    "The app's own tables: rows, schema, and policies that say who may reach which rows.",
    base="/v1/{app_id}",
    raises=(AppMigrating, ReservedTable),
    data=AppTables(),
    clones=CLONES,
    events=tuple(
        AppEvent(f"row.{word}", ROWS_CHANGED, f"A row of a table was {word}.", sample, "key")
        for word, sample in (
            ("inserted", {**_CHANGE, "row": _ROW, "old": None}),
            ("updated", {**_CHANGE, "row": _ROW, "old": {**_ROW, "status": "new"}}),
            ("deleted", {**_CHANGE, "row": None, "old": _ROW}),
        )
    ),
    envelope=TablesEnvelope(),
)
ROWS = Listing("rows", is_bare=True)
WRITTEN_ROWS = Listing("rows", is_bare=True, sample=10)
