"""A tool server as an app has registered it: where it is, and what of it may be used how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from sqlalchemy import select

from baobab.runtime.agents.remote.errors import ToolChanged, ToolNotOffered
from baobab.runtime.agents.remote.tables import tool_servers
from baobab.runtime.agents.remote.tool_description import ToolDescription
from baobab.runtime.agents.validation import ToolOffer
from baobab.storage.database import Execute

ToolState = Literal["accepted", "new", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class ToolServer:
    """acl: by tool, its owner's `mode` and `exposed_to`. seen: what the server last told, where it ever did."""

    id: str
    name: str
    url: str
    transport: str
    credential: str | None = field(repr=False)
    acl: Mapping[str, Mapping[str, str]]
    accepted: Mapping[str, ToolDescription]
    seen: Mapping[str, ToolDescription] | None

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> Self:
        seen = None if row["seen"] is None else _parse_tools(row["seen"])
        where = (row["id"], row["name"], row["url"], row["transport"], row["credential"])
        return cls(*where, acl=row["tool_acl"], accepted=_parse_tools(row["accepted"]), seen=seen)

    def get_state(self, name: str) -> ToolState:
        """How a tool that was accepted or seen stands."""
        accepted, seen = self.accepted.get(name), (self.seen or {}).get(name)
        if accepted is None:
            return "new"
        if seen is None:
            return "gone"
        return "accepted" if accepted.digest == seen.digest else "changed"

    def get_tool(self, name: str) -> ToolDescription:
        """A tool that may be called. ToolNotOffered, ToolChanged."""
        accepted = self.accepted.get(name)
        if accepted is None or self.get_state(name) == "gone":
            raise ToolNotOffered
        if self.get_state(name) == "changed":
            raise ToolChanged
        return accepted

    def build_offer(self, tool: ToolDescription) -> ToolOffer:
        """It only reads where both its server and its owner let it, and is for users where its owner says so."""
        owner_rules = self.acl.get(tool.name, {})
        reads = tool.read_only and owner_rules.get("mode") != "read_write"
        users = owner_rules.get("exposed_to") == "end_user"
        return ToolOffer("read_only" if reads else "read_write", "end_user" if users else "developer_only")


async def load_servers(execute: Execute, app_id: str) -> dict[str, ToolServer]:
    """The tool servers of an app, by name and by id."""
    rows: Any = (await execute(select(tool_servers).where(tool_servers.c.app_id == app_id))).mappings().all()
    servers = [ToolServer.from_row(row) for row in rows]
    # An id is nobody else's: no name takes its place.
    return {server.name: server for server in servers} | {server.id: server for server in servers}


def _parse_tools(rows: Mapping[str, Any]) -> dict[str, ToolDescription]:
    return {name: ToolDescription.from_row(name, row) for name, row in rows.items()}
