"""/v1/{app_id}/functions/{name}/versions: what was deployed before, and going back to it."""

import difflib
from typing import Any

from sqlalchemy import select, update

from baobab.storage.sql.database import Execute
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard
from baobab.tools.functions.errors import FunctionNotFound, VersionNotFound
from baobab.tools.functions.live import publish_change
from baobab.tools.functions.rows import get_row
from baobab.tools.functions.schemas import FunctionVersion, Name, RolledBack, VersionDiff, VersionNumber, Versions
from baobab.tools.functions.tables import FREEZES, functions_table, versions
from baobab.tools.functions.toolset import functions

_columns, _versions = functions_table.c, versions.c


@functions.tool("GET /functions/{name}/versions", access=AppOwner(), effect="read", raises=(FunctionNotFound,))
async def functions_versions(call: Call, app_id: AppId, name: Name) -> Versions:
    """List the versions of a function, newest first: the last 50, and the one that is live."""
    async with call.reading() as execute:
        row = await get_row(execute, app_id, name)
        of_function = (_versions.app_id == app_id, _versions.function_id == row.id)
        rows = (await execute(select(versions).where(*of_function).order_by(_versions.number.desc()))).all()
    return {"versions": [_describe(each, row.version) for each in rows]}


def _describe(row: Any, live_number: int) -> FunctionVersion:
    return {
        "number": row.number,
        "live": row.number == live_number,
        "language": row.language,
        "sha256": row.sha256,
        "bytes": len(row.source.encode()),
        "message": row.message,
        "author": row.author,
        "created_at": row.created_at,
    }


async def _get_version(execute: Execute, row: Any, number: int) -> Any:
    is_it = (_versions.app_id == row.app_id, _versions.function_id == row.id, _versions.number == number)
    version = (await execute(select(versions).where(*is_it))).first()
    if version is None:
        raise VersionNotFound(f"The function {row.name} has no version {number}.")
    return version


@functions.tool(
    "GET /functions/{name}/versions/{number}/diff",
    access=AppOwner(),
    effect="read",
    raises=(FunctionNotFound, VersionNotFound),
)
async def functions_versions_diff(
    call: Call, app_id: AppId, name: Name, number: VersionNumber, before: VersionNumber | None = None
) -> VersionDiff:
    """Compare the source of a version with that of another one.

    before: the version that it is compared with; left out, the live one.
    """
    async with call.reading() as execute:
        row = await get_row(execute, app_id, name)
        after_version = await _get_version(execute, row, number)
        before_version = await _get_version(execute, row, before or row.version)
    lines = difflib.unified_diff(
        before_version.source.splitlines(),
        after_version.source.splitlines(),
        f"{name}@{before_version.number}",
        f"{name}@{number}",
        lineterm="",
    )
    return {"before": before_version.number, "after": number, "diff": "\n".join(lines)}


@functions.tool(
    "POST /functions/{name}/versions/{number}/rollback",
    access=AppOwner("admin"),
    effect="write",
    raises=(FunctionNotFound, VersionNotFound),
    audit=Audit("function.rollback", category="function", action="update", resource="function"),
    guard=Guard(grants=True),
)
async def functions_rollback(call: Call, app_id: AppId, name: Name, number: VersionNumber) -> RolledBack:
    """Make a version of a function the live one, at once: also to go forward again. Settings and triggers stay."""
    async with FREEZES.writing(call) as unit:
        row = await get_row(unit.execute, app_id, name)
        version = await _get_version(unit.execute, row, number)
        is_it = (_columns.app_id == app_id, _columns.id == row.id)
        values = {"version": number, "updated_at": call.now}
        await unit.execute(update(functions_table).where(*is_it).values(**values))
    await publish_change(call, of_tools=row.agent_tool)
    call.audit.resource_id = row.id
    call.audit.data |= {"name": name, "version": number, "before": row.version, "sha256": version.sha256}
    message = f"{name} answers with version {number} now; before, it was {row.version}."
    return {"name": name, "version": number, "sha256": version.sha256, "message": message}
