"""The substrate over REST and MCP: the shapes that clients read, and who an agent is."""

import json
from typing import Any

import pytest

from tests.conftest import Baobab
from tests.jobs import run_due_jobs
from tests.mcp_server.mcp_requests import ERAS, call_tool
from tests.people import create_key, create_person
from tests.tools.conftest import ToolHarness

BASE = "/v1/me/substrate"


async def test_a_key_of_the_substrate_opens_it_and_no_other_key_does(baobab: Baobab) -> None:
    ada, client = await create_person(baobab, "ada"), baobab.client
    key = await create_key(baobab, ada.headers, scope="substrate")
    body = {
        "capability": "upsert_entity",
        "payload": {"type": "person", "display_name": "Zoë", "primary_email": "zoe@example.com"},
    }
    response = await client.post(f"{BASE}/actions/propose", json=body, headers=key)
    assert response.status_code == 200, response.text
    (entity,) = (await client.get(f"{BASE}/entities?q=zoe&count=true", headers=ada.headers)).json()["entities"]
    assert (entity["id"], entity["_sim"], "sim" in entity) == (response.json()["result"]["entity_id"], 1.0, False)
    other = await create_key(baobab, ada.headers)
    refusal = await client.get(f"{BASE}/entities", headers=other)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_INSUFFICIENT_PERMISSIONS")
    listed_body = (await client.get(f"{BASE}/memory/list", headers=key)).json()
    assert listed_body == {"results": [], "next_before": None}


async def test_what_led_to_a_proposal_is_kept_from_its_header(baobab: Baobab) -> None:
    ada, client = await create_person(baobab, "ada-context"), baobab.client
    body = {"capability": "record_decision", "payload": {"title": "Ship", "kind": "vision"}}
    headers = {**ada.headers, "x-platform-trigger-context": '{"mail": 7}'}
    created_body = (await client.post(f"{BASE}/actions/propose", json=body, headers=headers)).json()
    action = (await client.get(f"{BASE}/actions/{created_body['action_id']}", headers=ada.headers)).json()
    assert action["trigger_context"] == {"mail": 7}
    page = (await client.get(f"{BASE}/actions?limit=1", headers=ada.headers)).json()
    assert (page["actions"][0]["id"], page["next_before"]) == (created_body["action_id"], None)


@pytest.mark.parametrize("era", ERAS)
async def test_an_mcp_client_says_what_led_to_its_proposals_in_a_header(baobab: Baobab, era: str) -> None:
    ada = await create_person(baobab, f"ada-context-{era}")
    by = await create_key(baobab, ada.headers, scope="substrate")
    by["x-platform-trigger-context"] = '{"mail": 7}'
    arguments = {"capability": "record_decision", "payload": {"title": "Ship", "kind": "vision"}}
    view = "/mcp?toolsets=substrate"
    for own, expected_context in (({}, {"mail": 7}), ({"trigger_context": "a question"}, {"text": "a question"})):
        result = await call_tool(baobab, "substrate_propose", arguments | own, by=by, era=era, path=view)
        action_id = result["structuredContent"]["action_id"]
        action = (await baobab.client.get(f"{BASE}/actions/{action_id}", headers=ada.headers)).json()
        assert action["trigger_context"] == expected_context


async def test_a_key_that_must_ask_waits_in_the_one_inbox(baobab: Baobab) -> None:
    ada, client = await create_person(baobab, "ada-asks"), baobab.client
    key = await create_key(baobab, ada.headers, scope="substrate", approval="write")
    body = {"capability": "record_decision", "payload": {"title": "Ship", "kind": "vision"}}
    waits = await client.post(f"{BASE}/actions/propose", json=body, headers=key)
    assert (waits.status_code, waits.json()["error"]["code"]) == (428, "APPROVAL_REQUIRED")
    (approval,) = (await client.get("/v1/approvals?status=pending", headers=ada.headers)).json()["approvals"]
    assert approval["tool"] == "substrate_propose"
    assert (await client.get(f"{BASE}/actions", headers=ada.headers)).json()["actions"] == []


async def test_forgetting_reaches_the_calls_that_wait_and_those_that_were_approved(baobab: Baobab) -> None:
    ada, client, secret = await create_person(baobab, "ada-forgets"), baobab.client, "Zyzzyva"
    key = await create_key(baobab, ada.headers, scope="substrate", approval="write")

    async def propose(capability: str, headers: dict[str, str] = key, **payload: Any) -> Any:
        body = {"capability": capability, "payload": payload}
        answer = await client.post(f"{BASE}/actions/propose", json=body, headers=headers)
        return answer.json() | {"status": answer.status_code}

    async def ask(name: str, *, method: str = "GET") -> Any:
        return (await client.request(method, f"/v1/approvals/{name}", headers=ada.headers)).json()

    person: Any = {"type": "person", "display_name": secret, "id": "ent_forgotten"}
    approval_id = (await propose("upsert_entity", **person))["error"]["details"]["approval_id"]
    await ask(f"{approval_id}/approve", method="POST")
    await run_due_jobs(baobab.application)
    waits = await propose("patch_entity", id="ent_forgotten", attrs_patch={"note": secret})
    other = await propose("record_learning", title="Kept", description="It is about nobody.")
    waits, other = (each["error"]["details"]["approval_id"] for each in (waits, other))
    assert secret in json.dumps([await ask(approval_id), await ask(waits)])
    proposal = await propose("forget", ada.headers, ids=["ent_forgotten"], reason="They asked us to.")
    response = await client.post(f"{BASE}/actions/{proposal['action_id']}/approve", headers=ada.headers)
    assert sorted(response.json()["result"]["calls"]) == sorted([approval_id, waits])
    rows = [await ask(each) for each in (approval_id, waits, other)]
    assert secret not in json.dumps(rows)
    assert [row["approval"]["status"] for row in rows] == ["executed", "rejected", "pending"]
    receipts = (await client.get(f"{BASE}/receipts", headers=ada.headers)).json()["receipts"]
    (body,) = [body for each in receipts if (body := json.loads(each["body"]))["capability"] == "forget"]
    assert sorted(body["forgotten_calls"]) == sorted([approval_id, waits])


async def test_the_key_of_an_oauth_client_opens_the_substrate(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    agent = type(ada)(ada.account_id, ada.organisation_id, "key", None, substrate=True)
    payload = {"title": "Ship", "kind": "vision"}
    result = await harness.call("substrate_propose", agent, capability="record_decision", payload=payload)
    assert result["requires_approval"] is False
