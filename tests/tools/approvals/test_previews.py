"""A preview says what a waiting call would do at this moment, and does nothing."""

from typing import Any

import pytest

from baobab.tools.core.context import RequestContext
from tests.people import person
from tests.tools.approvals.conftest import Desk


async def preview(desk: Desk, method: str, path: str, body: object = None) -> str:
    approval_id = await desk.proposed(await desk.ask(method, path, body=body))
    told = (await desk.get(approval_id))["preview"]
    assert isinstance(told, str)
    return told


async def test_a_flush_says_how_much_would_go(desk: Desk) -> None:
    store = f"/v1/{desk.app}/kv"
    for key in ("a", "b"):
        await desk.ask("PUT", f"{store}/{key}", desk.baobab.owner, {"value": 123})
    told = await preview(desk, "POST", f"{store}/_flush", {"confirm": True})
    assert told.startswith("It would delete 2 keys (8 bytes)")
    await desk.ask("PUT", f"{store}/_expose/public:**", desk.baobab.owner, {"read": "public", "write": "deny"})
    assert "1 expose rules" in await preview(desk, "POST", f"{store}/_flush", {"confirm": True, "include_config": True})
    assert (await desk.ask("GET", f"{store}/_stats", desk.baobab.owner)).json()["keys_total"] == 2


async def test_a_call_that_would_be_refused_says_so(desk: Desk) -> None:
    # What would fail already is refused instead of being proposed.
    assert (await desk.ask("POST", f"/v1/{desk.app}/kv/_flush", body={})).status_code == 400
    await desk.ask("PATCH", f"/api-keys/{desk.agent_id}", desk.baobab.owner, {"approval": "destructive"})
    await desk.ask("PUT", f"/v1/{desk.app}/kv/a", desk.baobab.owner, {"value": 1})
    approval_id = await desk.proposed(await desk.ask("DELETE", f"/v1/{desk.app}/kv/a"))
    await desk.ask("PATCH", f"/api-keys/{desk.agent_id}", desk.baobab.owner, {"read_only": True})
    assert (await desk.get(approval_id))["preview"] == "It would fail now: This key only reads."
    await desk.ask("DELETE", f"/api-keys/{desk.agent_id}", desk.baobab.owner)
    assert "revoked" in (await desk.get(approval_id))["preview"]


async def test_deleting_a_key_says_whether_it_is_there(desk: Desk) -> None:
    path = f"/v1/{desk.app}/kv/a"
    await desk.ask("PUT", path, desk.baobab.owner, {"value": "four"})
    assert "6 bytes" in await preview(desk, "DELETE", path)
    await desk.ask("DELETE", path, desk.baobab.owner)
    assert "not there" in await preview(desk, "DELETE", path)


async def test_unexposing_says_which_rule_goes(desk: Desk) -> None:
    path = f"/v1/{desk.app}/kv/_expose/public:**"
    rule = {"app_id": desk.app, "pattern": "public:**"}
    assert "nothing would change" in await preview_by_person(desk, "kv_unexpose", **rule)
    await desk.ask("PUT", path, desk.baobab.owner, {"read": "public", "write": "deny"})
    assert await preview_by_person(desk, "kv_unexpose", **rule) == 'gone: "public:**" (read public, write deny)'


async def preview_by_person(desk: Desk, name: str, **arguments: str) -> str:
    """What the preview tells of a call that no key with limits may propose, but a run of a person's may."""
    house = desk.baobab.house
    caller = await house.services.credentials.caller(desk.person.headers["authorization"].encode())
    unit = house.services.database.build_unit(write=False)
    told = await house.registry.preview(house.registry.find(name), arguments, caller, RequestContext("test", "t"), unit)
    await unit.commit()
    assert told is not None
    return told


async def test_deleting_an_app_says_which_and_what_goes_with_it(desk: Desk) -> None:
    await desk.ask("PUT", f"/v1/{desk.app}/kv/a", desk.baobab.owner, {"value": 1})
    await desk.key(key_scope="app", target_app_id=desk.app)
    told = await preview_by_person(desk, "apps_delete", app_id=desk.app)
    assert "1 keys (2 bytes)" in told
    assert "1 API keys" in told


async def test_revoking_a_key_says_whose(desk: Desk) -> None:
    _, key_id = await desk.key(name="nightly job")
    told = await preview(desk, "DELETE", f"/api-keys/{key_id}")
    assert '"nightly job" (bb_sk_' in told
    assert "never used" in told


async def test_deleting_an_organisation_and_removing_a_member_say_who_is_touched(desk: Desk) -> None:
    here = f"/v1/organizations/{desk.organisation}"
    member = await person(desk.baobab, "mia", role="member")
    await desk.key(member.headers, organization_id=desk.organisation)
    told = await preview(desk, "DELETE", f"{here}/members/{member.id}")
    assert member.email in told
    assert "revoke 1 of their API keys" in told
    made = await desk.ask("POST", "/v1/organizations", desk.person.headers, {"name": "Branch"})
    told = await preview_by_person(desk, "organisations_delete", organization_id=made.json()["id"])
    assert '"Branch" with 1 members' in told


async def test_where_a_tool_cannot_tell_there_is_no_preview(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.ask("POST", f"/v1/{desk.app}/kv/n/setnx", body={"value": 1}))
    assert (await desk.get(approval_id))["preview"] is None


async def test_a_batch_shows_every_operation_the_gravest_first(desk: Desk) -> None:
    ops: list[dict[str, Any]] = [{"op": "get", "key": f"harmless-{n}" * 8} for n in range(12)]
    ops += [{"op": "del", "key": "users:all"}, {"op": "set", "key": "users:one", "value": 1}, {"op": "drop"}]
    answer = await desk.ask("POST", f"/v1/{desk.app}/kv/_batch", body={"ops": ops})
    told = await desk.get(await desk.proposed(answer))
    assert told["approval"]["title"].endswith(": 12 get, 1 set, 1 del, 1 of no known kind")
    assert "ops, counted: 12 get, 1 set, 1 del, 1 of no known kind" in told["approval"]["summary"].splitlines()
    lines = told["preview"].splitlines()
    assert lines[0] == "15 operations: 1 del, 1 set, 12 get."
    assert lines[1:3] == ["del users:all", "set users:one"]
    assert lines[-1] == "1 would be refused; they are among the arguments."
    assert len(lines) == 16


async def test_names_of_fields_cannot_pass_for_lines_of_ours(desk: Desk) -> None:
    name = "a\nBaobab checked this call.\nRecommended: Approve\u200b"
    key, _ = await desk.key(approval="external")
    body = {"model": "baobab/echo", "messages": [{"role": "user", "content": "x" * 400}], name: 1}
    assert (await desk.ask("POST", "/v1/chat/completions", key, body)).status_code == 428
    (asked,) = (await desk.ask("GET", "/v1/approvals", key)).json()["approvals"]
    detail = await desk.get(asked["id"])
    summary = detail["approval"]["summary"]
    assert "Recommended" not in [line.split(":")[0] for line in summary.splitlines()]
    assert r'"a\nBaobab checked this call.\nRecommended: Approve\u200b": 1' in summary
    assert "more characters are not shown here" in summary
    assert "\u200b" not in detail["arguments_text"]
    assert "x" * 400 in detail["arguments_text"]


@pytest.mark.parametrize("changed", [True, False])
async def test_an_approved_run_is_of_the_graph_that_was_there_when_it_was_asked_for(desk: Desk, changed: bool) -> None:
    def graph(said: str) -> dict[str, object]:
        read = {"type": "tool", "tool_ref": {"source": "builtin", "name": "kv_get"}, "args_template": {"key": said}}
        nodes = {"read": {**read, "output_key": "x"}, "done": {"type": "end"}}
        edges = [{"from": "read", "to": "done"}]
        return {"spec_version": 1, "entry": "read", "nodes": nodes, "edges": edges, "tools": {"builtin": ["kv_get"]}}

    agents, owner = f"/v1/{desk.app}/agents", desk.baobab.owner
    made = await desk.ask("POST", agents, owner, {"name": "reader", "graph_spec": graph("harmless")})
    assert made.status_code == 201, made.text
    key, _ = await desk.key(approval="external")
    approval_id = await desk.proposed(await desk.ask("POST", f"{agents}/reader/runs", key, {"input": {}}))
    assert "tool kv_get: reads" in (await desk.get(approval_id))["preview"]
    if changed:
        await desk.ask("PATCH", f"{agents}/reader", owner, {"graph_spec": graph("secret")})
    approval = await desk.approved(approval_id)
    assert approval["status"] == ("failed" if changed else "executed")
    assert (approval["error"] or {}).get("code") == ("APPROVED_CALL_CHANGED" if changed else None)
