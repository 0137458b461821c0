"""The steps that many tests of tool servers share."""

from typing import Any

from baobab.tools.core.auth.callers import Caller
from tests.tools.agents.conftest import Agency, build_graph

# Loopback is where the fakes are; all other private networks stay closed.
LOOPBACK = "127.0.0.1/32"
TOKEN = "tok-0123456789-theirs"


async def register_server(agency: Agency, url: str, by: Caller | None = None, **more: Any) -> dict[str, Any]:
    arguments = {"name": "docs", "url": url, **more}
    result = await agency.harness.call("mcp_servers_create", by or agency.owner, app_id=agency.app_id, **arguments)
    server: dict[str, Any] = result["mcp_server"]
    return server


async def probe_server(agency: Agency, server: dict[str, Any], **more: Any) -> dict[str, Any]:
    probe: dict[str, Any] = await agency.harness.call(
        "mcp_servers_probe", agency.owner, app_id=agency.app_id, id=server["id"], **more
    )
    return probe


def tool_states(server: dict[str, Any]) -> dict[str, str]:
    return {tool["name"]: tool["state"] for tool in server["tools"]}


def tool_ref(server: dict[str, Any], name: str, **more: str) -> dict[str, str]:
    return {"source": "mcp", "server_id": server["id"], "name": name, **more}


def tools_section(server: dict[str, Any], *names: str, **overrides: Any) -> dict[str, Any]:
    return {"mcp_servers": [{"server_id": server["id"], "tools": list(names), "tool_overrides": overrides}]}


def call_graph(server: dict[str, Any], name: str, arguments: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    """A graph that makes one call and answers its result."""
    call = {"type": "tool", "tool_ref": tool_ref(server, name), "args_template": arguments, "output_key": "found"}
    end = {"type": "end", "output_template": "{{ state.found }}"}
    return build_graph({"call": call, "done": end}, ("call", "done"), tools=tools_section(server, name, **overrides))


async def get_failure(agency: Agency, name: str = "a") -> dict[str, Any]:
    """Returns the error of a call that failed."""
    run = await agency.run_agent(name)
    assert run["status"] == "failed", run
    error: dict[str, Any] = (await agency.list_events(name, run["id"], "tool_call_end"))[-1]["payload"]["error"]
    return error
