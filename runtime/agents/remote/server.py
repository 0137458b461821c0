"""A tool server as an app has registered it: its address, and how its tools may be used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from sqlalchemy import select

from baobab.runtime.agents.remote.errors import ToolChanged, ToolNotOffered
from baobab.runtime.agents.remote.tables import tool_servers
from baobab.runtime.agents.remote.tool_description import ToolDescription
from baobab.runtime.agents.spec.validation import ToolOffer
from baobab.storage.sql.database import Execute

ToolState = Literal["accepted", "new", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class ToolServer:
    """A tool server of an app.

    acl: `mode` and `exposed_to` that the owner has set, by tool. accepted_tools: the tools as the owner accepted them.
    seen_tools: the tools as the server last described them; None where it never has.
    """

    id: str
    name: str
    url: str
    transport: str
    credential: str | None = field(repr=False)
    acl: Mapping[str, Mapping[str, str]]
    accepted_tools: Mapping[str, ToolDescription]
    seen_tools: Mapping[str, ToolDescription] | None

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> Self:
        seen_tools = None if row["seen"] is None else _parse_tools(row["seen"])
        where = (row["id"], row["name"], row["url"], row["transport"], row["credential"])
        return cls(*where, acl=row["tool_acl"], accepted_tools=_parse_tools(row["accepted"]), seen_tools=seen_tools)

    def get_state(self, name: str) -> ToolState:
        """Returns the state of a tool that was accepted or seen."""
        accepted_tool, seen_tool = self.accepted_tools.get(name), (self.seen_tools or {}).get(name)
        if accepted_tool is None:
            return "new"
        if seen_tool is None:
            return "gone"
        return "accepted" if accepted_tool.digest == seen_tool.digest else "changed"

    def get_tool(self, name: str) -> ToolDescription:
        """Returns a tool that may be called. Raises ToolNotOffered and ToolChanged."""
        tool = self.accepted_tools.get(name)
        if tool is None or self.get_state(name) == "gone":
            raise ToolNotOffered
        if self.get_state(name) == "changed":
            raise ToolChanged
        return tool

    def build_offer(self, tool: ToolDescription) -> ToolOffer:
        """Builds the offer of a tool. It is read-only if server and owner agree, and open to users if the owner says
        so.
        """
        owner_rules = self.acl.get(tool.name, {})
        reads = tool.read_only and owner_rules.get("mode") != "read_write"
        users = owner_rules.get("exposed_to") == "end_user"
        return ToolOffer(
            "read_only" if reads else "read_write",
            "end_user" if users else "developer_only",
            effect="external",
            schema=tool.input_schema,
        )


async def load_servers(execute: Execute, app_id: str) -> dict[str, ToolServer]:
    """Returns the tool servers of an app, by name and by id."""
    rows: Any = (await execute(select(tool_servers).where(tool_servers.c.app_id == app_id))).mappings().all()
    servers = [ToolServer.from_row(row) for row in rows]
    # Ids come last, so that no server's name can stand for the id of another one.
    return {server.name: server for server in servers} | {server.id: server for server in servers}


def _parse_tools(rows: Mapping[str, Any]) -> dict[str, ToolDescription]:
    return {name: ToolDescription.from_row(name, row) for name, row in rows.items()}
