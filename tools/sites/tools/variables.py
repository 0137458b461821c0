"""/v1/{app_id}/frontend/env: the variables of the next build. Their values are never shown again."""

import json
import re
from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from baobab.storage.sql.database import Execute, Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest, Secret, Text
from baobab.tools.sites.errors import VariablesInvalid
from baobab.tools.sites.schemas import VariableKeys
from baobab.tools.sites.tables import FREEZES, sites_table
from baobab.tools.sites.toolset import sites

_MOST, _MOST_BYTES = 100, 8192
_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")
Value = Annotated[str, Secret(_MOST_BYTES)]
Variables = Annotated[
    dict[Annotated[str, Text(100)], Value], Field(max_length=_MOST, description="The variables: values by name.")
]
Changes = Annotated[
    dict[Annotated[str, Text(100)], Value | None],
    Field(max_length=_MOST, description="Values by name; null removes a variable."),
]
_AUDIT = Audit("site.variables", category="app", action="update", resource="app")
_EXAMPLE = {"API_URL": "https://api.example.com"}


@sites.tool("GET /env", access=AppOwner(), effect="read")
async def sites_env_keys(call: Call, app_id: AppId) -> VariableKeys:
    """List the names of the variables for the next build. Values are never shown."""
    async with call.reading() as execute:
        return {"keys": sorted(await _read(call, execute))}


@sites.tool(
    "PUT /env",
    access=AppOwner("admin"),
    effect="write",
    raises=(VariablesInvalid,),
    audit=_AUDIT,
    rest=Rest(body="variables", examples={"variables": _EXAMPLE}),
    guard=Guard(grants=True),
)
async def sites_env_replace(call: Call, app_id: AppId, variables: Variables) -> VariableKeys:
    """Replace all variables for the next build. What is deployed already does not change."""
    async with FREEZES.writing(call) as unit:
        return await _write(call, unit, dict(variables))


@sites.tool(
    "PATCH /env",
    access=AppOwner("admin"),
    effect="write",
    raises=(VariablesInvalid,),
    audit=_AUDIT,
    rest=Rest(body="variables", examples={"variables": _EXAMPLE}),
    guard=Guard(grants=True),
)
async def sites_env_change(call: Call, app_id: AppId, variables: Changes) -> VariableKeys:
    """Set or remove some variables for the next build, and keep the others."""
    async with FREEZES.writing(call) as unit:
        all_variables = {**await _read(call, unit.execute), **variables}
        return await _write(call, unit, {name: value for name, value in all_variables.items() if value is not None})


async def _read(call: Call, execute: Execute) -> dict[str, str]:
    app_id = call.require_app().id
    envelope = (
        await execute(select(sites_table.c.variables).where(sites_table.c.app_id == app_id))
    ).scalar_one_or_none()
    if envelope is None:
        return {}
    variables: dict[str, str] = json.loads(call.services.vault.open(envelope, _build_context(app_id)))
    return variables


async def _write(call: Call, unit: Unit, variables: dict[str, str]) -> VariableKeys:
    """Seals and stores the variables. Raises VariablesInvalid."""
    if len(variables) > _MOST:
        raise VariablesInvalid(f"There would be {len(variables)} variables; an app has at most {_MOST}.")
    for name, value in variables.items():
        if not _NAME.fullmatch(name) or len(value.encode()) > _MOST_BYTES:
            raise VariablesInvalid(f"The variable {name[:100]!r} has a name or a value that it cannot have.")
    app_id = call.require_app().id
    envelope = call.services.vault.seal(json.dumps(variables).encode(), _build_context(app_id))
    insertion = build_upsert(unit.database.dialect, sites_table).values(app_id=app_id, variables=envelope)
    await unit.execute(insertion.on_conflict_do_update(index_elements=["app_id"], set_={"variables": envelope}))
    call.audit.resource_id = app_id
    call.audit.data["keys"] = sorted(variables)
    return {"keys": sorted(variables)}


def _build_context(app_id: str) -> str:
    return f"sites.variables:{app_id}"
