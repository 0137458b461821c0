"""Approvers: members who decide about calls of agents, and reach nothing else, through any interface."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from baobab.tools.core.auth.access import is_for_approvers
from tests.conftest import Baobab
from tests.http.console.test_runs import build_graph
from tests.jobs import run_due_jobs
from tests.mcp_server.mcp_requests import call_tool, read_refusal, send_message
from tests.people import Person, create_person, get_first_organisation
from tests.tools.access import Caller, World, open_world

FOR_APPROVERS = {
    "approvals_list",
    "approvals_get",
    "approvals_approve",
    "approvals_reject",
    "approvals_hold",
    "approvals_take_back",
    "approvals_snooze",
    "approvals_inbox_state",
    "approvals_waiting",
    "notices_get",
    "notices_update",
    "notices_channel_add",
    "notices_channel_confirm",
    "notices_channel_remove",
    "notices_channel_test",
    "notices_push_key",
    "notices_messages_list",
    # Their own account, and which organisations it belongs to.
    "platform_me",
    "platform_update",
    "platform_logout",
    "platform_change_email",
    "platform_delete",
    "organisations_list",
    "organisations_get",
    "organisations_accept_invitation",
    # To leave: nobody else.
    "organisations_remove_member",
    "console_sessions_list",
    "console_session_revoke",
    "console_sign_out",
    "console_passkey_begin",
    "console_passkey_add",
    "console_passkeys_list",
    "console_passkey_remove",
}


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}


@pytest.fixture
async def world(baobab: Baobab) -> AsyncIterator[World]:
    async with open_world(baobab) as created_world:
        yield created_world


@pytest.mark.own_installation
async def test_every_tool_but_a_short_list_refuses_an_approver(world: Any) -> None:
    registry = world.baobab.application.registry
    open_tools = {
        name for name, tool in registry.tools.items() if tool.access.credential and is_for_approvers(tool.access)
    }
    assert open_tools == FOR_APPROVERS
    person = await create_person(world.baobab, "approver", role="approver", of=world.org)
    headers = {**person.headers, "x-organization-id": world.org}
    owner = world.callers["owner"]
    approver = Caller("approver", headers, person.email, owner.client)
    answers: dict[str, str] = {}
    for name, tool in registry.tools.items():
        if tool.access.credential and name not in FOR_APPROVERS:
            world.baobab.application.services.limits._windows.clear()
            if tool.rest is not None and tool.rest.socket:
                # Over HTTP everybody is told to open a WebSocket.
                arguments = await world.build_arguments(name, owner)
                answers[name] = await world.call_without_route(name, arguments, approver)
            else:
                answers[name] = await world.call_tool(name, approver, "403")
    # A repository that is not open to everybody is not there for those who may not read it.
    hidden_tools = {name for name in answers if name.startswith("repo_") and not name.startswith("repo_settings_")}
    expected_answers = {name: ("404",) if name in hidden_tools else ("403",) for name in answers}
    assert {name: answer for name, answer in answers.items() if answer not in expected_answers[name]} == {}
    for_other = {"organization_id": world.org, "account_id": world.other_member.id}
    path = "/v1/organizations/{organization_id}/members/{account_id}".format(**for_other)
    assert (await world.baobab.client.delete(path, headers=headers)).status_code == 403


async def open_desk(baobab: Baobab, **agent: Any) -> tuple[str, str]:
    """An app with an agent whose call waits for a member, and the id of the approval."""
    app_id = await baobab.create_app()
    graph = build_graph(asks=True)
    graph["nodes"]["first"]["approvers"] = "member"
    body = {"name": "asker", "graph_spec": graph, "dedupe_window_seconds": 0, **agent}
    response = await baobab.client.post(f"/v1/{app_id}/agents", json=body, headers=baobab.owner)
    assert response.status_code == 201, response.text
    run_input = {"input": {"key": "a", "value": 1}}
    response = await baobab.client.post(f"/v1/{app_id}/agents/asker/runs", json=run_input, headers=baobab.owner)
    assert response.status_code == 201, response.text
    await run_due_jobs(baobab.application)
    response = await baobab.client.get(f"/v1/approvals?status=pending&app_id={app_id}", headers=baobab.owner)
    [approval] = response.json()["approvals"]
    return app_id, approval["id"]


async def create_approver(baobab: Baobab, app_ids: list[str] | None = None) -> Person:
    person = await create_person(baobab, "staff", role="approver", app_ids=app_ids)
    organisation = await get_first_organisation(baobab)
    return Person(person.id, person.email, organisation, {**person.headers, "x-organization-id": organisation})


async def test_an_approver_sees_what_waits_for_members_and_decides(baobab: Baobab) -> None:
    app_id, approval_id = await open_desk(baobab)
    staff = await create_approver(baobab, [app_id])
    response = await baobab.client.get("/v1/approvals", headers=staff.headers)
    assert [row["id"] for row in response.json()["approvals"]] == [approval_id]
    response = await baobab.client.get(f"/v1/approvals/{approval_id}", headers=staff.headers)
    details = response.json()
    assert (details["may_decide"], details["may_edit"]) == (True, False)
    assert details["changes"], details
    edit = {"arguments": {"key": "a", "value": 2}}
    path = f"/v1/approvals/{approval_id}/approve"
    assert (await baobab.client.post(path, json=edit, headers=staff.headers)).status_code == 403
    response = await baobab.client.post(path, json={}, headers=staff.headers)
    assert response.status_code == 200, response.text
    assert response.json()["approval"]["decided_by"] == staff.id
    await run_due_jobs(baobab.application)
    response = await baobab.client.get(f"/v1/{app_id}/kv/a", headers=baobab.owner)
    assert response.json()["value"] == 1


async def test_an_approver_of_chosen_apps_does_not_see_the_calls_of_others(baobab: Baobab) -> None:
    app_id, approval_id = await open_desk(baobab)
    _, other_approval_id = await open_desk(baobab)
    staff = await create_approver(baobab, [app_id])
    response = await baobab.client.get("/v1/approvals", headers=staff.headers)
    assert [row["id"] for row in response.json()["approvals"]] == [approval_id]
    assert (await baobab.client.get(f"/v1/approvals/{other_approval_id}", headers=staff.headers)).status_code == 404
    path = f"/v1/approvals/{other_approval_id}/approve"
    assert (await baobab.client.post(path, json={}, headers=staff.headers)).status_code == 404


async def test_what_is_for_admins_or_came_from_a_key_is_not_an_approvers_business(baobab: Baobab) -> None:
    staff = await create_approver(baobab)
    response = await baobab.client.post("/api-keys", json={"name": "a", "approval": "write"}, headers=baobab.owner)
    asking = {"authorization": f"Bearer {response.json()['key']}"}
    refusal = await baobab.client.post("/init", json={"name": "shop"}, headers=asking)
    approval_id = refusal.json()["error"]["details"]["approval_id"]
    assert (await baobab.client.get(f"/v1/approvals/{approval_id}", headers=staff.headers)).status_code == 404
    response = await baobab.client.get("/v1/approvals", headers=staff.headers)
    assert approval_id not in [row["id"] for row in response.json()["approvals"]]


async def test_models_of_an_approver_are_offered_what_they_may_call(baobab: Baobab) -> None:
    app_id, approval_id = await open_desk(baobab)
    staff = await create_approver(baobab)
    for path in ("/mcp", f"/mcp?app_id={app_id}", "/mcp?toolsets=approvals"):
        listing = (await send_message(baobab, "tools/list", path=path, headers=staff.headers)).result["tools"]
        registry = baobab.application.registry
        names = {tool["name"] for tool in listing} & registry.tools.keys()
        foreign = {name for name in names if registry.find(name).access.credential} - FOR_APPROVERS
        assert foreign == set(), path
        assert "approvals_approve" in names, path
    answer = await call_tool(baobab, "kv_get", {"app_id": app_id, "key": "a"}, headers=staff.headers)
    assert "only decides" in str(read_refusal(answer)), answer
    assert (await send_message(baobab, "tools/list", path="/mcp?toolsets=kv", headers=staff.headers)).status == 403
    answer = await call_tool(baobab, "approvals_approve", {"approval_id": approval_id}, headers=staff.headers)
    assert not answer.get("isError"), answer


async def test_a_member_who_becomes_an_approver_loses_every_key_here(baobab: Baobab) -> None:
    organisation = await get_first_organisation(baobab)
    person = await create_person(baobab, "was-member", role="member")
    key_fields = {"name": "mine", "organization_id": organisation}
    key = (await baobab.client.post("/api-keys", json=key_fields, headers=person.headers)).json()["key"]
    path = f"/v1/organizations/{organisation}/members/{person.id}"
    response = await baobab.client.patch(path, json={"role": "approver"}, headers=baobab.owner)
    assert response.json() == {"account_id": person.id, "role": "approver", "app_ids": None, "keys_revoked": 1}
    assert (await baobab.client.get("/apps", headers={"authorization": f"Bearer {key}"})).status_code == 401
    assert (await baobab.client.post("/api-keys", json=key_fields, headers=person.headers)).status_code == 403
    assert (await baobab.client.delete(path, headers=person.headers)).status_code == 200


async def test_only_apps_of_the_organisation_are_chosen_and_only_for_approvers(baobab: Baobab) -> None:
    organisation, app_id = await get_first_organisation(baobab), await baobab.create_app()
    path = f"/v1/organizations/{organisation}/invitations"
    for fields in (
        {"role": "member", "app_ids": [app_id]},
        {"role": "approver", "app_ids": ["app_000000000000"]},
    ):
        body = {"email": "theo@example.com", **fields}
        assert (await baobab.client.post(path, json=body, headers=baobab.owner)).status_code == 400
    theo = await create_person(baobab, "theo")
    body = {"email": theo.email, "role": "approver", "app_ids": [app_id]}
    invitation = (await baobab.client.post(path, json=body, headers=baobab.owner)).json()
    assert invitation["invitation"]["app_ids"] == [app_id]
    response = await baobab.client.post(f"/v1/invitations/{invitation['token']}/accept", headers=theo.headers)
    assert response.json()["organization"]["role"] == "approver"
    response = await baobab.client.get(f"/v1/organizations/{organisation}/members", headers=baobab.owner)
    assert [row["app_ids"] for row in response.json()["members"] if row["account_id"] == theo.id] == [[app_id]]
