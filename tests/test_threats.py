"""Attacks and mistakes that are known from similar systems do not succeed here.

Other rows have suites of their own: SSRF in tests/runtime/test_egress_addresses.py, forged tokens in
tests/http/test_tokens.py, stolen releases in tests/packaging/test_locks.py, every tool by every caller in
tests/tools/test_access.py.
"""

import asyncio

import pytest

from baobab.tools.core.limits import plans
from baobab.tools.core.limits.plans import Plan
from tests.conftest import Baobab

A = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
B = "5c1f7a52-1f0a-4c35-8f8f-6f6f0b9f3a77"
MCP = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}


def build_mcp_call(tool: str, **arguments: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.mark.parametrize("path", ["/apps", "/health", "/mcp", "/docs", "/openapi.json", "/metrics", "/nowhere"])
async def test_dns_rebinding_a_foreign_host_is_refused_at_every_door(baobab: Baobab, path: str) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "127.0.0.1@evil.example"):
        answer = await baobab.client.get(path, headers={**baobab.owner, "host": host})
        assert answer.status_code == 421, (path, host)


@pytest.mark.parametrize("path", ["/apps", "/health", "/mcp", "/docs", "/openapi.json", "/nowhere"])
async def test_a_page_of_a_foreign_origin_is_refused_at_every_door(baobab: Baobab, path: str) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example"):
        answer = await baobab.client.get(path, headers={**baobab.owner, "origin": origin})
        assert answer.status_code == 403, (path, origin)
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("trick", ["../other", "..%2fother", "a?b=c", "a#b", "a\x00b", "..\\..", "%00", "//x"])
async def test_path_parameters_pasted_into_urls_reach_no_other_app(baobab: Baobab, trick: str) -> None:
    mine, other = await baobab.create_app(), await baobab.create_app()
    await baobab.client.put(f"/v1/{other}/kv/secret", json={"value": "theirs"}, headers=baobab.owner)
    response = await baobab.client.post(
        "/api-keys", json={"name": "mine", "key_scope": "app", "target_app_id": mine}, headers=baobab.owner
    )
    key = {"authorization": f"Bearer {response.json()['key']}"}
    for app_id in (f"{mine}/{trick}", f"{mine}/../{other}", trick):
        body = build_mcp_call("kv_get", app_id=app_id, key="secret")
        answer = await baobab.client.post("/mcp", json=body, headers={**key, **MCP})
        assert "theirs" not in answer.text
        assert "isError" in answer.text
    for path in (f"{mine}/kv/..%2f..%2f{other}%2fkv%2fsecret", f"{mine}%2f..%2f{other}/kv/secret"):
        refusal = await baobab.client.get(f"/v1/{path}", headers=key)
        assert refusal.status_code in (400, 403, 404)
        assert "theirs" not in refusal.text


async def test_one_user_reads_and_writes_nothing_of_anothers(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    rule = {"read": "owner", "write": "owner"}
    await baobab.client.put(f"/v1/{app_id}/kv/_expose/user:{{user.id}}:**", json=rule, headers=baobab.owner)
    alice, bob = await baobab.user_headers(app_id, A), await baobab.user_headers(app_id, B)
    note = f"/v1/{app_id}/kv/user:{A}:note"
    assert (await baobab.client.put(note, json={"value": "hers"}, headers=alice)).status_code == 204
    assert (await baobab.client.get(note, headers=bob)).status_code == 403
    assert (await baobab.client.put(note, json={"value": "his"}, headers=bob)).status_code == 403
    assert (await baobab.client.get(note, headers=alice)).json() == {"value": "hers"}


async def test_tokens_in_query_strings_are_no_credentials(baobab: Baobab) -> None:
    for name in ("token", "access_token", "api_key", "apikey", "authorization"):
        answer = await baobab.client.get("/apps", params={name: baobab.key})
        assert answer.status_code in (400, 401)
        assert baobab.key not in answer.text


async def test_a_session_answers_only_the_credential_that_asks(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    body = build_mcp_call("apps_list")
    response = await baobab.client.post("/mcp", json=body, headers={**baobab.owner, **MCP})
    forged_headers = {**MCP, "mcp-session-id": response.headers.get("mcp-session-id", "guessed")}
    assert (await baobab.client.post("/mcp", json=body, headers=forged_headers)).status_code == 401
    user = await baobab.user_headers(app_id, A)
    hijacked_response = await baobab.client.post("/mcp", json=body, headers={**user, **forged_headers})
    assert app_id not in hijacked_response.text
    assert hijacked_response.status_code == 404


async def test_budgets_are_exact_under_four_hundred_callers(baobab: Baobab, monkeypatch: pytest.MonkeyPatch) -> None:
    tight = Plan("enterprise", None, None, kv_bytes=None, kv_keys=100)
    monkeypatch.setitem(plans.PLANS, "enterprise", tight)
    app_id = await baobab.create_app()

    async def put(number: int) -> int:
        path = f"/v1/{app_id}/kv/key{number}"
        return (await baobab.client.put(path, json={"value": number}, headers=baobab.owner)).status_code

    status_codes = await asyncio.gather(*(put(number) for number in range(400)))
    assert sorted(set(status_codes)) == [204, 507]
    assert status_codes.count(204) == 100
    stats = await baobab.client.get(f"/v1/{app_id}/kv/_stats", headers=baobab.owner)
    assert stats.json()["keys_total"] == 100
