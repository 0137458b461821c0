"""The functions of an app that its agents may call as tools."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import and_, select

from baobab.runtime.functions.tables import functions_table, versions
from baobab.storage.sql.database import Execute

_columns = functions_table.c
_ANYTHING: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function as a tool. input_schema: the JSON Schema of its arguments, where its code declares one."""

    name: str
    description: str
    mode: Literal["read_only", "read_write"]
    exposed_to: Literal["developer_only", "end_user"]
    input_schema: Mapping[str, Any]
    sha256: str


async def load_function_tools(execute: Execute, app_id: str) -> dict[str, FunctionTool]:
    """Returns the functions of an app with `agent_tool`, by name. execute: of the database of the app's region."""
    is_live = and_(
        versions.c.app_id == _columns.app_id,
        versions.c.function_id == _columns.id,
        versions.c.number == _columns.version,
    )
    query = (
        select(
            _columns.name,
            _columns.description,
            _columns.agent_tool_description,
            _columns.agent_tool_mode,
            _columns.agent_tool_exposed_to,
            versions.c.input_schema,
            versions.c.sha256,
        )
        .join(versions, is_live)
        .where(_columns.app_id == app_id, _columns.deleted_at.is_(None), _columns.agent_tool)
        .order_by(_columns.name)
    )
    rows: Any = (await execute(query)).all()
    return {row.name: _build_tool(row) for row in rows}


def _build_tool(row: Any) -> FunctionTool:
    description = row.agent_tool_description or row.description or f"The function {row.name} of the app."
    schema = row.input_schema or _ANYTHING
    return FunctionTool(row.name, description, row.agent_tool_mode, row.agent_tool_exposed_to, schema, row.sha256)
