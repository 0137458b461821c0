"""What is no right message of the protocol: the protocol's own error, with code and remedy, and no exception's text."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.mcp_server.endpoint import MAX_BODY
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import EARLIER, ERAS, MODERN, build_message, parse_messages, send_message

each_era = pytest.mark.parametrize("era", ERAS)

LEAKS = ("Traceback", "pydantic", "validation error", 'File "', "site-packages", "Error(")


def check_explained(error: dict[str, Any]) -> None:
    """An error that a model can follow."""
    assert isinstance(error["code"], int)
    assert error["data"]["code"], error
    assert error["data"]["remediation"], error
    assert not any(leak in json.dumps(error) for leak in LEAKS), error


async def post_message(baobab: Baobab, content: bytes, era: str | None, **headers: str) -> Any:
    default_headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        **baobab.owner,
    }
    if era is not None:
        default_headers["mcp-protocol-version"] = era
    return await baobab.client.post("/mcp", content=content, headers={**default_headers, **headers})


@each_era
async def test_an_unknown_tool(baobab: Baobab, era: str) -> None:
    error = (await send_message(baobab, "tools/call", {"name": "no_such_tool", "arguments": {}}, era=era)).error
    assert error["code"] == -32602
    check_explained(error)


@each_era
async def test_a_misspelt_tool_is_told_with_the_nearest_names(baobab: Baobab, era: str) -> None:
    error = (await send_message(baobab, "tools/call", {"name": "kv_gett", "arguments": {}}, era=era)).error
    assert "kv_get" in error["message"]
    through = {"name": "call_tool", "arguments": {"name": "kv_gett"}}
    result = (await send_message(baobab, "tools/call", through, era=era)).result
    assert result["isError"]
    assert "kv_get" in result["content"][0]["text"]
    assert "search_tools" in result["content"][0]["text"]


@each_era
async def test_an_unknown_method(baobab: Baobab, era: str) -> None:
    error = (await send_message(baobab, "tools/destroy", era=era)).error
    assert error["code"] == -32601
    check_explained(error)


@each_era
@pytest.mark.parametrize(
    "params",
    [{}, {"name": 7}, {"name": "kv_get", "arguments": []}, {"name": "kv_get", "arguments": "x"}, {"name": None}],
    ids=str,
)
async def test_a_call_whose_parameters_are_not_those_of_a_call(
    baobab: Baobab, era: str, params: dict[str, Any]
) -> None:
    body, headers = (
        build_message("tools/call", params, era=era)
        if "name" not in params or isinstance(params["name"], str)
        else build_message("tools/call", {}, era=era)
    )
    body["params"] |= params
    answer = await baobab.client.post("/mcp", json=body, headers={**headers, **baobab.owner})
    error = next(iter(parse_messages(answer)))["error"]
    # A name that is missing in the body may be found missing in the header first.
    assert error["code"] in (-32602, -32020)
    check_explained(error)


@each_era
@pytest.mark.parametrize("cursor", ["nonsense", "AAAA", "", "e30", "\u2603"])
async def test_a_cursor_that_no_list_gave(baobab: Baobab, era: str, cursor: str) -> None:
    for method in ("tools/list", "prompts/list", "resources/list"):
        error = (await send_message(baobab, method, {"cursor": cursor}, era=era)).error
        assert error["code"] == -32602
        check_explained(error)


@each_era
async def test_a_cursor_of_another_list(baobab: Baobab, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baobab.mcp_server.catalogue.PAGE", 5)
    cursor = (await send_message(baobab, "tools/list", path="/mcp?toolsets=all", era=era)).result["nextCursor"]
    assert (await send_message(baobab, "tools/list", {"cursor": cursor}, path="/mcp?toolsets=all", era=era)).result[
        "tools"
    ]
    error = (await send_message(baobab, "tools/list", {"cursor": cursor}, path="/mcp?toolsets=kv", era=era)).error
    assert error["code"] == -32602
    check_explained(error)


@pytest.mark.parametrize("session", ["1234", "0" * 64, "../x"])
async def test_a_forged_session(baobab: Baobab, session: str) -> None:
    for method in ("POST", "GET", "DELETE"):
        headers = {"accept": "application/json, text/event-stream", "mcp-session-id": session, **baobab.owner}
        body = build_message("tools/list", era=EARLIER)[0] if method == "POST" else None
        answer = await baobab.client.request(method, "/mcp", json=body, headers=headers)
        assert answer.status_code == 404
        check_explained(answer.json()["error"])


@each_era
async def test_a_body_that_is_too_large(baobab: Baobab, era: str) -> None:
    answer = await post_message(baobab, b" " * (MAX_BODY + 1), era)
    assert answer.status_code == 413
    check_explained(answer.json()["error"])


async def test_a_protocol_version_that_nobody_speaks(baobab: Baobab) -> None:
    for version in ("2027-01-01", "1", "latest"):
        for era in ERAS:
            answer = await send_message(baobab, "tools/list", era=era, headers={"mcp-protocol-version": version})
            assert (answer.status, answer.message["id"]) == (400, 1)
            assert version in answer.error["message"]
            assert answer.error["code"] == -32022
            check_explained(answer.error)
        body, headers = build_message("tools/list", era=MODERN)
        body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version
        all_headers = {**headers, **baobab.owner, "mcp-protocol-version": version}
        error = (await baobab.client.post("/mcp", json=body, headers=all_headers)).json()["error"]
        assert error["code"] == -32022
        assert MODERN in error["data"]["supported"]
        check_explained(error)


@pytest.mark.parametrize("headers", [{"mcp-method": "tools/call"}, {"mcp-name": "kv_put"}, {"mcp-method": ""}], ids=str)
async def test_headers_that_say_something_else_than_the_body(baobab: Baobab, headers: dict[str, str]) -> None:
    method = "tools/list" if "mcp-method" in headers else "tools/call"
    params = {"name": "kv_get", "arguments": {}} if method == "tools/call" else {}
    answer = await send_message(baobab, method, params, era=MODERN, headers=headers)
    assert answer.status == 400
    assert answer.error["code"] == -32020
    check_explained(answer.error)


@pytest.mark.parametrize("era", [None, *ERAS])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"a"',
        b"\xff\xfe",
        b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}',
        b'{"jsonrpc":"2.0","id":1}',
        b"[" * 10_000,
        b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"tools/list"}',
        *(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"a":[%s]}}}' % number
            for number in (b"NaN", b"-Infinity", b"1e999", b"-1e999")
        ),
    ],
    ids=lambda content: content[:40],
)
async def test_what_is_no_message_at_all(baobab: Baobab, era: str | None, content: bytes) -> None:
    answer = await post_message(baobab, content, era)
    assert answer.status_code == 400
    check_explained(answer.json()["error"])


@each_era
async def test_a_batch_of_a_version_that_has_none(baobab: Baobab, era: str) -> None:
    answer = await post_message(baobab, b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', era)
    assert answer.status_code == 400
    check_explained(answer.json()["error"])


@pytest.mark.parametrize("era", [None, "2025-03-26"])
async def test_a_batch_is_answered_message_by_message(baobab: Baobab, era: str | None) -> None:
    app_id = await baobab.create_app()
    raising = {"name": "kv_incr", "arguments": {"app_id": app_id, "key": "n"}}
    parts: list[Any] = [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": "two", "method": "tools/call", "params": raising},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": raising},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 4, "method": "nothing/like/it"},
        7,
    ]
    answer = await post_message(baobab, json.dumps(parts).encode(), era)
    assert answer.status_code == 200
    pong, first, second, unknown, no_message = answer.json()
    assert (pong["id"], first["id"], second["id"], unknown["id"]) == (1, "two", 3, 4)
    assert [json.loads(reply["result"]["content"][0]["text"]) for reply in (first, second)] == [
        {"value": 1},
        {"value": 2},
    ]
    check_explained(unknown["error"])
    check_explained(no_message["error"])
    silent = await post_message(baobab, json.dumps(parts[3:4]).encode(), era)
    assert (silent.status_code, silent.content) == (202, b"")
    many = await post_message(baobab, json.dumps(parts[:1] * 21).encode(), era)
    assert many.status_code == 400
    check_explained(many.json()["error"])


async def test_a_client_that_accepts_no_answer_of_ours(baobab: Baobab) -> None:
    for era in ERAS:
        body, headers = build_message("tools/list", era=era)
        answer = await baobab.client.post("/mcp", json=body, headers={**headers, **baobab.owner, "accept": "text/html"})
        assert answer.status_code == 406
        check_explained(answer.json()["error"])


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_a_method_that_the_address_does_not_take(baobab: Baobab, method: str) -> None:
    answer = await baobab.client.request(method, "/mcp", headers=baobab.owner)
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60)
@given(
    era=st.sampled_from(ERAS),
    method=st.sampled_from(["tools/call", "tools/list", "resources/read", "prompts/get", "completion/complete"]),
    params=st.dictionaries(
        st.sampled_from(["name", "arguments", "cursor", "uri", "ref", "argument", "requestState", "inputResponses"]),
        JSON,
        max_size=4,
    ),
)
async def test_no_parameters_whatever_break_the_endpoint(
    baobab: Baobab, era: str, method: str, params: dict[str, Any]
) -> None:
    body, headers = build_message(method, {}, era=era)
    body["params"] |= params
    subject = params.get("name") or params.get("uri")
    if isinstance(subject, str) and subject.isascii() and subject.isprintable():
        headers["mcp-name"] = subject
    answer = await baobab.client.post("/mcp", json=body, headers={**headers, **baobab.owner})
    assert answer.status_code in (200, 400, 404)
    (message,) = parse_messages(answer)
    assert not any(leak in json.dumps(message) for leak in LEAKS)
    if "error" in message:
        check_explained(message["error"])
