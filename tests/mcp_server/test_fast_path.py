"""What the fast path answers is what the protocol server would answer, and whatever it should not take it leaves."""

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest

from baobab.mcp_server.results import UNTRUSTED
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import ERAS, MODERN, build_message, parse_messages, send_message

each_era = pytest.mark.parametrize("era", [*ERAS, "2025-11-25"])


async def answer_both(
    baobab: Baobab, era: str, method: str, params: Mapping[str, Any], path: str = "/mcp"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One message answered by the fast path, and spelled so that the fast path leaves it to the protocol server."""
    body, headers = build_message(method, params, era=era)
    answers = []
    for spelling in (headers, {**headers, **_other_spelling(headers)}):
        answer = await baobab.client.post(path, json=body, headers={**spelling, **baobab.owner})
        (message,) = parse_messages(answer)
        answers.append(message)
    ours, server = (_without_mark(answer) for answer in answers)
    return ours, server


def _without_mark(message: dict[str, Any]) -> dict[str, Any]:
    """The message without the random mark around text of strangers."""
    mark = message.get("result", {}).get("_meta", {}).get(UNTRUSTED, {}).get("mark")
    plain_message: dict[str, Any] = json.loads(json.dumps(message).replace(mark, "MARK")) if mark else message
    return plain_message


def _other_spelling(headers: Mapping[str, str]) -> dict[str, str]:
    if "mcp-name" in headers:
        return {"mcp-name": f"=?base64?{b64encode(headers['mcp-name'].encode()).decode()}?="}
    # Any media type will do for JSON, but only one is plain enough for the fast path.
    return {"accept": "*/*"}


@each_era
@pytest.mark.parametrize("path", ["/mcp", "/mcp?results=text", "/mcp?toolsets=kv", "/mcp?toolsets=all&read_only=true"])
async def test_lists_are_the_same_either_way(baobab: Baobab, era: str, path: str) -> None:
    ours, server = await answer_both(baobab, era, "tools/list", {}, path)
    assert ours == server


@each_era
@pytest.mark.parametrize("path", ["/mcp", "/mcp?results=text", "/mcp?results=structured"])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("kv_get", {"app_id": "APP", "key": "a"}),
        ("kv_get", {"app_id": "APP", "key": "nobody"}),
        ("kv_get", {"app_id": "APP", "key": 7}),
        ("kv_get", {}),
        ("kv_put", {"app_id": "APP", "key": "b", "value": {"é": [1, None, 1.5, "\u2028"]}}),
        ("apps_list", {}),
        ("system_llms_txt", {}),
        ("call_tool", {"name": "kv_exists", "arguments": {"app_id": "APP", "key": "a"}}),
        ("call_tool", {"name": 7}),
        ("call_tool", {"name": "no_such_tool"}),
        ("search_tools", {"query": "counter"}),
        ("no_such_tool", {}),
    ],
)
async def test_calls_are_answered_the_same_either_way(
    baobab: Baobab, era: str, path: str, tool: str, arguments: dict[str, Any]
) -> None:
    app_id = await baobab.create_app()
    await baobab.client.put(f"/v1/{app_id}/kv/a", json={"value": "x"}, headers=baobab.owner)
    payload = json.loads(json.dumps(arguments).replace("APP", app_id))
    ours, server = await answer_both(baobab, era, "tools/call", {"name": tool, "arguments": payload}, path)
    assert ours == server


async def test_a_header_that_stands_twice_is_refused(baobab: Baobab) -> None:
    body, headers = build_message("tools/call", {"name": "kv_get", "arguments": {}}, era=MODERN)
    for name in ("mcp-name", "mcp-method", "mcp-protocol-version"):
        pairs = [*headers.items(), *baobab.owner.items(), (name, headers[name])]
        answer = await baobab.client.post("/mcp", json=body, headers=pairs)
        assert answer.status_code == 400, name
        assert answer.json()["error"]["code"] == -32020


async def test_the_audit_log_names_the_request_as_its_answer_does(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    arguments = {"app_id": app_id, "allowed_origins": ["https://a.example"]}
    call = {"name": "call_tool", "arguments": {"name": "config_cors", "arguments": arguments}}
    answer = await send_message(baobab, "tools/call", call, era=MODERN)
    logs = (await baobab.client.get(f"/v1/{app_id}/audit-logs", headers=baobab.owner)).json()["logs"]
    (row,) = [row for row in logs if row["event_type"] == "app.config.cors"]
    assert row["correlation_id"] == answer.headers["x-request-id"]
    assert row["event_data"]["door"] == "mcp"


async def test_many_spellings_of_one_cursor_are_one_page(baobab: Baobab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baobab.mcp_server.catalogue.PAGE", 10)
    path = "/mcp?toolsets=all"
    cursor = (await send_message(baobab, "tools/list", path=path, era=MODERN)).result["nextCursor"]
    page = (await send_message(baobab, "tools/list", {"cursor": cursor}, path=path, era=MODERN)).result
    for junk in ("!", "!!", " "):
        again = await send_message(baobab, "tools/list", {"cursor": cursor + junk}, path=path, era=MODERN)
        assert again.message.get("result") == page or again.message["error"]["code"] == -32602
