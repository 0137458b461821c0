"""A key's limits cannot be removed with the key."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab import tools
from baobab.tools.core.auth import key_limits
from baobab.tools.core.auth.callers import Account, Limits
from baobab.tools.core.guard.approvals import caller_requires_approval
from baobab.tools.core.registry import Registry
from tests.tools.approvals.conftest import ApprovalsClient

EVERY_LIMIT = (
    {"approval": "destructive"},
    {"toolsets": ["kv", "api_keys", "accounts", "organisations"]},
    {"read_only": True},
)
REGISTRY = Registry(tools.toolsets())
GRANTING = sorted(tool.name for tool in REGISTRY.tools.values() if tool.grants and tool.rest)
FAMILIES = [toolset.name for toolset in REGISTRY.toolsets]
limits = st.builds(
    Limits,
    toolsets=st.none() | st.frozensets(st.sampled_from(FAMILIES), min_size=1),
    read_only=st.booleans(),
    approval=st.sampled_from(["none", "destructive", "external", "write"]),
    always_ask=st.frozensets(st.sampled_from(sorted(REGISTRY.tools)), max_size=5),
    never_ask=st.frozensets(st.sampled_from(sorted(REGISTRY.tools)), max_size=5),
)


@given(limits, limits)
def test_a_key_that_a_key_makes_may_nothing_that_its_maker_may_not(maker: Limits, wanted_limits: Limits) -> None:
    old = Account("a", "o", "k1", maker)
    new = Account("a", "o", "k2", key_limits.narrow_limits(wanted_limits, maker))
    for tool in REGISTRY.tools.values():
        if key_limits.find_exceeded_limit(old, tool) or (maker != Limits() and tool.grants):
            assert key_limits.find_exceeded_limit(new, tool), tool.name
        if caller_requires_approval(old, tool.name, tool.effect):
            assert caller_requires_approval(new, tool.name, tool.effect), tool.name


@pytest.mark.parametrize("held_to", EVERY_LIMIT, ids=str)
async def test_no_key_with_limits_reaches_a_tool_that_hands_out_credentials_or_rights(
    approvals_client: ApprovalsClient, held_to: dict[str, Any]
) -> None:
    agent, _ = await approvals_client.create_key(**held_to)
    caller = await approvals_client.baobab.application.services.credentials.caller(agent["authorization"].encode())
    names = {tool.name for tool in approvals_client.baobab.application.registry.visible_to(caller)}
    assert not names & set(GRANTING)
    attempts = {
        "platform_update": ("PATCH", "/platform/me", {"name": "Mallory", "password": "correct Horse 7!"}),
        "api_keys_update": ("PATCH", f"/api-keys/{approvals_client.agent_id}", {"approval": "none"}),
        "organisations_invite": (
            "POST",
            f"/v1/organizations/{approvals_client.organisation}/invitations",
            {"email": "a@b.example"},
        ),
        "kv_rotate_key": ("POST", f"/v1/{approvals_client.app}/kv/_rotate_key", {}),
        "kv_expose": ("PUT", f"/v1/{approvals_client.app}/kv/_expose/**", {"read": "public", "write": "public"}),
        "kv_expose_replace": ("PUT", f"/v1/{approvals_client.app}/kv/_expose", {"rules": []}),
    }
    assert attempts.keys() <= set(GRANTING)
    for name, (method, path, body) in attempts.items():
        answer = await approvals_client.ask(method, path, agent, body)
        assert answer.status_code == 403, (name, answer.text)
        assert "AUTH_KEY_LIMITED" in answer.text, name


async def test_a_key_made_by_a_key_that_must_ask_must_ask_too_and_sees_what_it_asked(
    approvals_client: ApprovalsClient,
) -> None:
    agent, _ = await approvals_client.create_key(approval="destructive", toolsets=["kv", "api_keys"])
    response = await approvals_client.ask("POST", "/api-keys", agent, {"name": "child", "toolsets": ["kv"]})
    assert response.status_code == 201
    assert (response.json()["approval"], response.json()["toolsets"]) == ("destructive", ["approvals", "kv"])
    child = {"authorization": f"Bearer {response.json()['key']}"}
    await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/n", approvals_client.baobab.owner, {"value": 1})
    approval_id = await approvals_client.parse_approval_id(
        await approvals_client.ask("DELETE", f"/v1/{approvals_client.app}/kv/n", child)
    )
    assert (await approvals_client.get_approval(approval_id, child))["approval"][
        "proposer"
    ] == f"key:{response.json()['key_id']}"
    assert (await approvals_client.decide(approval_id, by=agent)).status_code == 403


async def test_acting_for_a_user_takes_nothing_off_a_key(approvals_client: ApprovalsClient) -> None:
    await approvals_client.ask(
        "PUT",
        f"/v1/{approvals_client.app}/kv/_expose/**",
        approvals_client.baobab.owner,
        {"read": "authed", "write": "authed"},
    )
    user = {"x-platform-as-user": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"}
    asks, _ = await approvals_client.create_key(key_scope="app", target_app_id=approvals_client.app, approval="write")
    reads, _ = await approvals_client.create_key(key_scope="app", target_app_id=approvals_client.app, read_only=True)
    assert (await approvals_client.raise_counter({**asks, **user})).status_code == 428
    assert (await approvals_client.raise_counter({**reads, **user})).status_code == 403


async def test_a_family_that_a_key_does_not_open_is_closed_and_not_shown(approvals_client: ApprovalsClient) -> None:
    agent, _ = await approvals_client.create_key(toolsets=["kv"])
    assert (await approvals_client.raise_counter(agent)).status_code == 200
    refusal = await approvals_client.ask("GET", "/apps", agent)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_KEY_LIMITED")
    caller = await approvals_client.baobab.application.services.credentials.caller(agent["authorization"].encode())
    assert {tool.toolset.name for tool in approvals_client.baobab.application.registry.visible_to(caller)} == {"kv"}


async def test_a_family_that_there_is_not_is_refused(approvals_client: ApprovalsClient) -> None:
    for method, path in (("POST", "/api-keys"), ("PATCH", f"/api-keys/{approvals_client.agent_id}")):
        answer = await approvals_client.ask(
            method, path, approvals_client.baobab.owner, {"name": "x", "toolsets": ["kv", "magic"]}
        )
        assert answer.status_code == 400
        assert "kv" in answer.json()["error"]["details"]["known"]


async def test_changed_limits_are_in_force_at_once_and_what_is_left_out_stays(
    approvals_client: ApprovalsClient,
) -> None:
    path = f"/api-keys/{approvals_client.agent_id}"
    answer = await approvals_client.ask("PATCH", path, approvals_client.baobab.owner, {"toolsets": ["kv"]})
    assert (answer.json()["toolsets"], answer.json()["approval"]) == (["approvals", "kv"], "write")
    assert (await approvals_client.ask("GET", "/apps")).status_code == 403
    await approvals_client.ask("PATCH", path, approvals_client.baobab.owner, {"toolsets": None, "read_only": True})
    assert (await approvals_client.ask("GET", "/apps")).status_code == 200
    assert (await approvals_client.raise_counter()).status_code == 403
    await approvals_client.ask("PATCH", path, approvals_client.baobab.owner, {"read_only": False, "approval": "none"})
    assert (await approvals_client.raise_counter()).status_code == 200
    assert (await approvals_client.ask("PATCH", path, approvals_client.baobab.owner, {})).status_code == 400


async def test_what_a_key_need_not_ask_for_any_more_waits_no_longer_and_is_done_once(
    approvals_client: ApprovalsClient,
) -> None:
    await approvals_client.ask(
        "PUT", f"/v1/{approvals_client.app}/kv/other", approvals_client.baobab.owner, {"value": 1}
    )
    deletion = await approvals_client.parse_approval_id(
        await approvals_client.ask("DELETE", f"/v1/{approvals_client.app}/kv/other")
    )
    raising = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await approvals_client.ask(
        "PATCH", f"/api-keys/{approvals_client.agent_id}", approvals_client.baobab.owner, {"approval": "destructive"}
    )
    assert (await approvals_client.get_approval(deletion))["approval"]["status"] == "pending"
    approval = (await approvals_client.get_approval(raising))["approval"]
    assert (approval["status"], approval["decided_by"] is not None) == ("rejected", True)
    assert (await approvals_client.raise_counter()).json() == {"value": 1}
    assert (await approvals_client.decide(raising)).status_code == 409
    assert await approvals_client.get_counter() == 1


async def test_only_whoever_may_revoke_a_key_changes_its_limits(approvals_client: ApprovalsClient) -> None:
    assert (
        await approvals_client.ask(
            "PATCH", f"/api-keys/{approvals_client.agent_id}", approvals_client.agent, {"name": "x"}
        )
    ).status_code == 403
    theirs = await approvals_client.ask(
        "PATCH", f"/api-keys/{approvals_client.agent_id}", approvals_client.person.headers, {"name": "renamed"}
    )
    assert theirs.json()["name"] == "renamed"
    await approvals_client.ask("DELETE", f"/api-keys/{approvals_client.agent_id}", approvals_client.person.headers)
    assert (
        await approvals_client.ask(
            "PATCH", f"/api-keys/{approvals_client.agent_id}", approvals_client.person.headers, {"name": "y"}
        )
    ).status_code == 404


async def put_rule(approvals_client: ApprovalsClient, tool: str, ask: str, by: Any = None) -> Any:
    path = f"/api-keys/{approvals_client.agent_id}/asks/{tool}"
    return await approvals_client.ask("PUT", path, by or approvals_client.baobab.owner, {"ask": ask})


async def test_a_key_never_or_always_asks_before_a_tool_whatever_its_effect(approvals_client: ApprovalsClient) -> None:
    first, second = [
        await approvals_client.parse_approval_id(await approvals_client.raise_counter(key=key)) for key in ("n", "m")
    ]
    response = await put_rule(approvals_client, "kv_incr", "never")
    assert (response.status_code, response.json()["asks"]) == (200, {"kv_incr": "never"})
    # What waited is not made a second time by somebody who approves it later.
    for approval_id in (first, second):
        assert (await approvals_client.get_approval(approval_id))["approval"]["status"] == "rejected"
        assert (await approvals_client.decide(approval_id)).status_code == 409
    assert (await approvals_client.raise_counter()).json() == {"value": 1}
    # Other tools ask as before.
    assert (await approvals_client.ask("DELETE", f"/v1/{approvals_client.app}/kv/n")).status_code == 428

    path = f"/api-keys/{approvals_client.agent_id}"
    await approvals_client.ask("PATCH", path, approvals_client.baobab.owner, {"approval": "none"})
    assert (await approvals_client.raise_counter()).json() == {"value": 2}
    assert (await put_rule(approvals_client, "kv_incr", "always")).json()["asks"] == {"kv_incr": "always"}
    waiting = await approvals_client.parse_approval_id(await approvals_client.raise_counter(key="asked"))
    await approvals_client.approve_and_wait(waiting)
    assert await approvals_client.get_counter("asked") == 1
    assert (await put_rule(approvals_client, "kv_incr", "by_effect")).json()["asks"] == {}
    assert (await approvals_client.raise_counter(key="other")).json() == {"value": 1}


async def test_rules_of_two_tools_that_are_set_at_once_are_both_kept(approvals_client: ApprovalsClient) -> None:
    tools_ = ("kv_incr", "kv_delete", "kv_put", "kv_cas", "kv_flush")
    answers = await asyncio.gather(*(put_rule(approvals_client, tool, "never") for tool in tools_))
    assert {answer.status_code for answer in answers} == {200}
    keys = (await approvals_client.ask("GET", "/api-keys", approvals_client.baobab.owner)).json()["keys"]
    (key,) = [key for key in keys if key["id"] == approvals_client.agent_id]
    assert key["asks"] == dict.fromkeys(tools_, "never")


async def test_a_key_sets_no_rules_for_itself_and_gives_none_away(approvals_client: ApprovalsClient) -> None:
    assert (await put_rule(approvals_client, "kv_incr", "never", approvals_client.agent)).status_code == 403
    assert (await put_rule(approvals_client, "kv_nothing", "never")).status_code == 404
    assert (await put_rule(approvals_client, "kv_get", "always")).status_code == 400
    wrong = await put_rule(approvals_client, "kv_incr", "sometimes")
    assert "'always', 'never' or 'by_effect'" in wrong.text
    await put_rule(approvals_client, "kv_incr", "never")
    # Making a key is a change, too, for which this key asks.
    await put_rule(approvals_client, "api_keys_create", "never")
    key_headers, _ = await approvals_client.create_key(approvals_client.agent, approval="none")
    assert (await approvals_client.raise_counter(key_headers)).status_code == 428


async def test_a_rule_reaches_the_replacing_of_what_is_there(approvals_client: ApprovalsClient) -> None:
    path, owner = f"/v1/{approvals_client.app}/kv/there", approvals_client.baobab.owner
    await approvals_client.ask("PUT", path, owner, {"value": 1})
    await approvals_client.ask("PATCH", f"/api-keys/{approvals_client.agent_id}", owner, {"approval": "destructive"})
    assert (await approvals_client.ask("PUT", path, None, {"value": 2})).status_code == 428
    await put_rule(approvals_client, "kv_put", "never")
    assert (await approvals_client.ask("PUT", path, None, {"value": 3})).is_success


async def test_a_call_that_was_approved_is_not_made_again_when_the_key_need_not_ask_any_more(
    approvals_client: ApprovalsClient,
) -> None:
    waiting = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await approvals_client.approve_and_wait(waiting)
    assert (await put_rule(approvals_client, "kv_incr", "never")).status_code == 200
    # Agents repeat a call that waits until they get its outcome.
    assert (await approvals_client.raise_counter()).json() == {"value": 1}
    assert await approvals_client.get_counter() == 1
    assert (await approvals_client.raise_counter()).json() == {"value": 2}
