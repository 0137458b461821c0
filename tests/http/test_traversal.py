"""Path parameters pasted into addresses: `../`, `%2f`, `?`, `#`, NUL, in every path argument over both interfaces."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.installation import App, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRICKS = ["../{other}/kv/secret", "..", "a/../../{other}/kv/secret", "..\\..\\x", "%2e%2e/x", "a?touch=true", "a#b",
"a\x00", "a%00", "/etc/passwd",
          "a/%2e%2e/b", "http://169.254.169.254/", "a\r\nx: y", "a;b", "a//b", "./a"]  # fmt: skip


async def call_tool(world: Installation, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool through MCP."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {**world.owner, "content-type": "application/json", "accept": "application/json, text/event-stream"}
    answer = await world.ask("POST", "/mcp", headers, message)
    assert answer.status == 200, answer.content
    text = answer.content.decode()
    if text.startswith(("event:", "data:")):
        text = next(line[5:] for line in text.splitlines() if line.startswith("data:"))
    result: dict[str, Any] = json.loads(text)
    return result


@pytest.mark.parametrize("trick", TRICKS)
async def test_a_key_is_a_name_and_never_a_path(world: Installation, app: App, trick: str) -> None:
    other = await world.create_app()
    await world.put(other, "secret", "of the other app")
    key = trick.format(other=other.id)
    by_rest = await world.ask("GET", f"{app.kv}/{quote(key, safe='')}", world.owner)
    by_mcp = await call_tool(world, "kv_get", {"app_id": app.id, "key": key})
    assert by_rest.status in {400, 404}
    assert by_rest.json["error"] in {"key_invalid", "invalid_key", "not_found"}
    assert by_mcp["result"]["isError"] is True
    for app_id in (key, f"{app.id}/../{other.id}", f"{app.id}%2F..", f"{app.id}?", f"{app.id}\x00"):
        by_rest = await world.ask("GET", f"/v1/{quote(app_id, safe='')}/kv/secret", world.owner)
        assert (by_rest.status, by_rest.json["error"]) == (404, "no_kv_credential")
        assert "isError" in json.dumps(await call_tool(world, "kv_get", {"app_id": app_id, "key": "secret"}))
    for name in ("secret", "of the other app"):
        assert name not in json.dumps(by_mcp).replace(key, "")
    assert (await world.ask("GET", f"{app.kv}/_stats", world.owner)).json["keys_total"] == 0
