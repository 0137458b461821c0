"""Beginnings of names whose texts an admin has marked as the app's own: of keys, and of files in a folder."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Column, String, Table, delete, func, insert, select
from typing_extensions import TypedDict

from baobab.storage.sql.database import Execute
from baobab.storage.sql.tables import Instant, metadata
from baobab.tools.core.app_clones import Ability, Place
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BadRequest
from baobab.tools.core.guard.texts import require_marking
from baobab.tools.core.services import Services
from baobab.tools.core.types import Text

_MOST = 100

OwnPrefix = Annotated[str, Text(255, 1), Field(description="How the names begin, such as `settings:` or `handbook/`.")]


class Marked(TypedDict):
    prefix: str
    marked_by: Annotated[str | None, Field(description="The account or key that has marked it.")]
    marked_at: datetime


class OwnPrefixes(TypedDict):
    own_text: list[Marked]


def define_prefixes(name: str) -> Table:
    """Defines a table of an app's marked beginnings, in the database of its region."""
    return Table(
        name,
        metadata,
        Column("app_id", String(36), primary_key=True),
        Column("prefix", String(255), primary_key=True),
        Column("marked_by", String(80)),
        Column("marked_at", Instant, nullable=False),
    )


async def list_prefixes(execute: Execute, table: Table, app_id: str) -> Sequence[Any]:
    """Lists the marked beginnings of an app."""
    return (await execute(select(table).where(table.c.app_id == app_id).order_by(table.c.prefix))).all()


def list_abilities(table: Table, what: str, tool: str) -> Callable[[Services, Place], Awaitable[list[Ability]]]:
    """Builds what clones say of marks, which they do not have. what: whose beginnings these are, such as `keys`."""

    async def list_marks(services: Services, place: Place) -> list[Ability]:
        del services
        async with place.stores.database.reading() as connection:
            rows = await list_prefixes(connection.execute, table, place.app_id)
        return [
            Ability(
                "own_text",
                f"{what} {row.prefix}",
                f"Agents take the texts of {what} that begin with `{row.prefix}` for the app's own.",
                tool=tool,
            )
            for row in rows
        ]

    return list_marks


def render_prefixes(rows: Sequence[Any]) -> OwnPrefixes:
    return {
        "own_text": [{"prefix": row.prefix, "marked_by": row.marked_by, "marked_at": row.marked_at} for row in rows]
    }


async def set_prefix(call: Call, execute: Execute, table: Table, prefix: str, *, own: bool) -> None:
    """Marks a beginning, or ends that. Raises Forbidden for those who may not mark, BadRequest for too many."""
    app_id = call.require_app().id
    call.audit.resource_id = prefix[:200]
    call.audit.data["own_text"] = own
    conditions = (table.c.app_id == app_id, table.c.prefix == prefix)
    if not own:
        await execute(delete(table).where(*conditions))
        return
    require_marking(call)
    if (await execute(select(table.c.prefix).where(*conditions))).first() is not None:
        return
    counting = select(func.count()).select_from(table).where(table.c.app_id == app_id)
    if (await execute(counting)).scalar_one() >= _MOST:
        raise BadRequest(f"An app has at most {_MOST} of these marks.", remediation="End marks that are not needed.")
    row = {"app_id": app_id, "prefix": prefix, "marked_by": call.caller.actor_id, "marked_at": call.now}
    await execute(insert(table).values(row))


def is_covered(name: str, prefixes: Sequence[str]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)
