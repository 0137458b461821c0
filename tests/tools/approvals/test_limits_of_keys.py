"""What a key is held to, no use of the key gets rid of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab import tools
from baobab.tools.core.approvals import caller_requires_approval
from baobab.tools.core.auth import key_limits
from baobab.tools.core.auth.callers import Account, Limits
from baobab.tools.core.registry import Registry
from tests.tools.approvals.conftest import Desk

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
)


@given(limits, limits)
def test_a_key_that_a_key_makes_may_nothing_that_its_maker_may_not(maker: Limits, asked: Limits) -> None:
    old = Account("a", "o", "k1", maker)
    new = Account("a", "o", "k2", key_limits.narrow_limits(asked, maker))
    for tool in REGISTRY.tools.values():
        if key_limits.find_exceeded_limit(old, tool) or (maker != Limits() and tool.grants):
            assert key_limits.find_exceeded_limit(new, tool), tool.name
        if caller_requires_approval(old, tool.effect):
            assert caller_requires_approval(new, tool.effect), tool.name


@pytest.mark.parametrize("held_to", EVERY_LIMIT, ids=str)
async def test_no_key_with_limits_reaches_a_tool_that_hands_out_credentials_or_rights(
    desk: Desk, held_to: dict[str, Any]
) -> None:
    agent, _ = await desk.key(**held_to)
    caller = await desk.baobab.house.services.credentials.caller(agent["authorization"].encode())
    offered = {tool.name for tool in desk.baobab.house.registry.visible_to(caller)}
    assert not offered & set(GRANTING)
    attempts = {
        "platform_update": ("PATCH", "/platform/me", {"name": "Mallory", "password": "correct Horse 7!"}),
        "api_keys_update": ("PATCH", f"/api-keys/{desk.agent_id}", {"approval": "none"}),
        "organisations_invite": (
            "POST",
            f"/v1/organizations/{desk.organisation}/invitations",
            {"email": "a@b.example"},
        ),
        "kv_rotate_key": ("POST", f"/v1/{desk.app}/kv/_rotate_key", {}),
        "kv_expose": ("PUT", f"/v1/{desk.app}/kv/_expose/**", {"read": "public", "write": "public"}),
        "kv_expose_replace": ("PUT", f"/v1/{desk.app}/kv/_expose", {"rules": []}),
    }
    assert attempts.keys() <= set(GRANTING)
    for name, (method, path, body) in attempts.items():
        answer = await desk.ask(method, path, agent, body)
        assert answer.status_code == 403, (name, answer.text)
        assert "AUTH_KEY_LIMITED" in answer.text, name


async def test_a_key_made_by_a_key_that_must_ask_must_ask_too_and_sees_what_it_asked(desk: Desk) -> None:
    agent, _ = await desk.key(approval="destructive", toolsets=["kv", "api_keys"])
    made = await desk.ask("POST", "/api-keys", agent, {"name": "child", "toolsets": ["kv"]})
    assert made.status_code == 201
    assert (made.json()["approval"], made.json()["toolsets"]) == ("destructive", ["approvals", "kv"])
    child = {"authorization": f"Bearer {made.json()['key']}"}
    await desk.ask("PUT", f"/v1/{desk.app}/kv/n", desk.baobab.owner, {"value": 1})
    approval_id = await desk.proposed(await desk.ask("DELETE", f"/v1/{desk.app}/kv/n", child))
    assert (await desk.get(approval_id, child))["approval"]["proposer"] == f"key:{made.json()['key_id']}"
    assert (await desk.decide(approval_id, by=agent)).status_code == 403


async def test_acting_for_a_user_takes_nothing_off_a_key(desk: Desk) -> None:
    await desk.ask("PUT", f"/v1/{desk.app}/kv/_expose/**", desk.baobab.owner, {"read": "authed", "write": "authed"})
    user = {"x-platform-as-user": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"}
    asks, _ = await desk.key(key_scope="app", target_app_id=desk.app, approval="write")
    reads, _ = await desk.key(key_scope="app", target_app_id=desk.app, read_only=True)
    assert (await desk.raise_counter({**asks, **user})).status_code == 428
    assert (await desk.raise_counter({**reads, **user})).status_code == 403


async def test_a_family_that_a_key_does_not_open_is_closed_and_not_shown(desk: Desk) -> None:
    agent, _ = await desk.key(toolsets=["kv"])
    assert (await desk.raise_counter(agent)).status_code == 200
    refused = await desk.ask("GET", "/apps", agent)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "AUTH_KEY_LIMITED")
    caller = await desk.baobab.house.services.credentials.caller(agent["authorization"].encode())
    assert {tool.toolset.name for tool in desk.baobab.house.registry.visible_to(caller)} == {"kv"}


async def test_a_family_that_there_is_not_is_refused(desk: Desk) -> None:
    for method, path in (("POST", "/api-keys"), ("PATCH", f"/api-keys/{desk.agent_id}")):
        answer = await desk.ask(method, path, desk.baobab.owner, {"name": "x", "toolsets": ["kv", "magic"]})
        assert answer.status_code == 400
        assert "kv" in answer.json()["error"]["details"]["known"]


async def test_changed_limits_are_in_force_at_once_and_what_is_left_out_stays(desk: Desk) -> None:
    path = f"/api-keys/{desk.agent_id}"
    changed = await desk.ask("PATCH", path, desk.baobab.owner, {"toolsets": ["kv"]})
    assert (changed.json()["toolsets"], changed.json()["approval"]) == (["approvals", "kv"], "write")
    assert (await desk.ask("GET", "/apps")).status_code == 403
    await desk.ask("PATCH", path, desk.baobab.owner, {"toolsets": None, "read_only": True})
    assert (await desk.ask("GET", "/apps")).status_code == 200
    assert (await desk.raise_counter()).status_code == 403
    await desk.ask("PATCH", path, desk.baobab.owner, {"read_only": False, "approval": "none"})
    assert (await desk.raise_counter()).status_code == 200
    assert (await desk.ask("PATCH", path, desk.baobab.owner, {})).status_code == 400


async def test_what_a_key_need_not_ask_for_any_more_waits_no_longer_and_is_done_once(desk: Desk) -> None:
    await desk.ask("PUT", f"/v1/{desk.app}/kv/other", desk.baobab.owner, {"value": 1})
    deletion = await desk.proposed(await desk.ask("DELETE", f"/v1/{desk.app}/kv/other"))
    raising = await desk.proposed(await desk.raise_counter())
    await desk.ask("PATCH", f"/api-keys/{desk.agent_id}", desk.baobab.owner, {"approval": "destructive"})
    assert (await desk.get(deletion))["approval"]["status"] == "pending"
    withdrawn = (await desk.get(raising))["approval"]
    assert (withdrawn["status"], withdrawn["decided_by"] is not None) == ("rejected", True)
    assert (await desk.raise_counter()).json() == {"value": 1}
    assert (await desk.decide(raising)).status_code == 409
    assert await desk.counter() == 1


async def test_only_whoever_may_revoke_a_key_changes_its_limits(desk: Desk) -> None:
    assert (await desk.ask("PATCH", f"/api-keys/{desk.agent_id}", desk.agent, {"name": "x"})).status_code == 403
    theirs = await desk.ask("PATCH", f"/api-keys/{desk.agent_id}", desk.person.headers, {"name": "renamed"})
    assert theirs.json()["name"] == "renamed"
    await desk.ask("DELETE", f"/api-keys/{desk.agent_id}", desk.person.headers)
    assert (
        await desk.ask("PATCH", f"/api-keys/{desk.agent_id}", desk.person.headers, {"name": "y"})
    ).status_code == 404
