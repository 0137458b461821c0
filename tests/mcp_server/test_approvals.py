"""Approval over MCP: the call waits, a person is shown where to decide, and the same call then answers."""

import asyncio
from typing import Any

import pytest

from baobab.storage.sql.database import DatabaseUnavailable
from tests.cli.server_process import TIMEOUT_SECONDS
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import EARLIER, ERAS, MODERN, Answer, call_tool, read_refusal, send_message
from tests.people import create_person, get_first_organisation

each_era = pytest.mark.parametrize("era", ERAS)

SHOWS_ADDRESSES: dict[str, Any] = {"elicitation": {"url": {}}}
FORMS_ONLY: dict[str, Any] = {"elicitation": {"form": {}}}
OPENED = {"approval": {"action": "accept"}}


async def create_approval_key(baobab: Baobab, approval: str = "write", **options: Any) -> dict[str, str]:
    """Headers with a new key whose calls wait for a person."""
    body = {"name": "an agent", "approval": approval, **options}
    response = await baobab.client.post("/api-keys", json=body, headers=baobab.owner)
    assert response.status_code == 201, response.text
    return {"authorization": f"Bearer {response.json()['key']}"}


async def decide_approval(baobab: Baobab, approval_id: str, decision: str = "approve", **body: Any) -> Any:
    return await baobab.client.post(f"/v1/approvals/{approval_id}/{decision}", json=body, headers=baobab.owner)


async def wait_for_status(baobab: Baobab, approval_id: str) -> str:
    """How an approved call ended."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            read = await baobab.client.get(f"/v1/approvals/{approval_id}", headers=baobab.owner)
            status: str = read.json()["approval"]["status"]
            if status not in ("pending", "approved"):
                return status
            await asyncio.sleep(0.02)


async def get_value(baobab: Baobab, app_id: str, key: str) -> Any:
    read = await baobab.client.get(f"/v1/{app_id}/kv/{key}", headers=baobab.owner)
    return read.json().get("value")


def increment_call(app_id: str) -> dict[str, Any]:
    return {"name": "kv_incr", "arguments": {"app_id": app_id, "key": "visits"}}


@each_era
async def test_a_call_that_needs_a_person_waits_and_is_answered_once_approved(baobab: Baobab, era: str) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    call = {"app_id": app_id, "key": "visits"}
    refused_result = await call_tool(baobab, "kv_incr", call, by=agent, era=era)
    assert refused_result["isError"] is True
    refusal = read_refusal(refused_result)
    assert refusal["code"] == "APPROVAL_REQUIRED"
    assert "visits" in refusal["details"]["summary"]
    assert refusal["details"]["decide_at"] in refused_result["content"][0]["text"]
    assert await get_value(baobab, app_id, "visits") is None

    assert (await decide_approval(baobab, refusal["details"]["approval_id"])).status_code == 200
    assert await wait_for_status(baobab, refusal["details"]["approval_id"]) == "executed"
    assert await get_value(baobab, app_id, "visits") == 1
    result = await call_tool(baobab, "kv_incr", call, by=agent, era=era)
    assert result["structuredContent"] == {"value": 1}
    assert await get_value(baobab, app_id, "visits") == 1


@each_era
async def test_reads_of_such_a_key_do_not_wait(baobab: Baobab, era: str) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    await baobab.client.put(f"/v1/{app_id}/kv/a", json={"value": 1}, headers=baobab.owner)
    got = await call_tool(baobab, "kv_get", {"app_id": app_id, "key": "a"}, by=agent, era=era)
    assert got["structuredContent"] == {"value": 1}


@each_era
async def test_call_tool_is_no_way_around(baobab: Baobab, era: str) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    refusal = await call_tool(baobab, "call_tool", increment_call(app_id), by=agent, era=era)
    assert read_refusal(refusal)["code"] == "APPROVAL_REQUIRED"
    assert await get_value(baobab, app_id, "visits") is None


@each_era
async def test_a_rejection_is_told_with_its_reason(baobab: Baobab, era: str) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    call = {"app_id": app_id, "key": "visits"}
    refusal = read_refusal(await call_tool(baobab, "kv_incr", call, by=agent, era=era))
    await decide_approval(baobab, refusal["details"]["approval_id"], "reject", reason="not on a Saturday")
    rejection = read_refusal(await call_tool(baobab, "kv_incr", call, by=agent, era=era))
    assert rejection["code"] == "APPROVAL_REJECTED"
    assert "not on a Saturday" in rejection["message"]


async def test_the_credential_that_proposed_cannot_decide_over_mcp_either(baobab: Baobab) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab, "destructive")
    call = {"app_id": app_id, "key": "a"}
    await call_tool(baobab, "kv_put", {**call, "value": 1})
    refusal = read_refusal(await call_tool(baobab, "kv_delete", call, by=agent))
    decision = {"approval_id": refusal["details"]["approval_id"]}
    for tool, word in (("approvals_approve", "approve"), ("approvals_reject", "reject")):
        assert read_refusal(await call_tool(baobab, tool, decision, by=agent))["code"].startswith("AUTH_")
        over_rest = await baobab.client.post(f"/v1/approvals/{decision['approval_id']}/{word}", json={}, headers=agent)
        assert over_rest.status_code == 403
    mine = (await call_tool(baobab, "approvals_get", decision, by=agent))["structuredContent"]["approval"]
    assert mine["status"] == "pending"


async def request_approval(baobab: Baobab, agent: dict[str, str], app_id: str) -> Answer:
    answer = await send_message(
        baobab, "tools/call", increment_call(app_id), by=agent, era=MODERN, capabilities=SHOWS_ADDRESSES
    )
    assert answer.result["resultType"] == "input_required"
    return answer


def parse_approval_id(answer: Answer) -> str:
    url: str = answer.result["inputRequests"]["approval"]["params"]["url"]
    return url.rsplit("/", 1)[1]


async def resume_call(
    baobab: Baobab,
    agent: dict[str, str],
    app_id: str,
    answer: Answer,
    responses: dict[str, Any] = OPENED,
    **changes: Any,
) -> Answer:
    again = {
        **increment_call(app_id),
        "requestState": answer.result["requestState"],
        "inputResponses": responses,
        **changes,
    }
    return await send_message(baobab, "tools/call", again, by=agent, era=MODERN, capabilities=SHOWS_ADDRESSES)


async def test_a_client_that_shows_addresses_is_asked_to_show_where_to_decide(
    baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baobab.mcp_server.calls.PATIENCE_SECONDS", float(TIMEOUT_SECONDS))
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    answer = await request_approval(baobab, agent, app_id)
    approval = answer.result["inputRequests"]["approval"]
    assert approval["method"] == "elicitation/create"
    assert approval["params"]["mode"] == "url"
    assert approval["params"]["url"].startswith("http://127.0.0.1:8000/console/approvals/appr_")
    assert "visits" in approval["params"]["message"]
    await decide_approval(baobab, parse_approval_id(answer))
    resumed_answer = await resume_call(baobab, agent, app_id, answer)
    assert resumed_answer.result["structuredContent"] == {"value": 1}


async def test_the_call_goes_on_as_soon_as_the_person_has_decided(
    baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twenty seconds are not enough on every machine.
    monkeypatch.setattr("baobab.mcp_server.calls.PATIENCE_SECONDS", float(TIMEOUT_SECONDS))
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    answer = await request_approval(baobab, agent, app_id)
    waiting = asyncio.create_task(resume_call(baobab, agent, app_id, answer))
    await asyncio.sleep(0)
    await decide_approval(baobab, parse_approval_id(answer))
    assert (await waiting).result["structuredContent"] == {"value": 1}
    assert await get_value(baobab, app_id, "visits") == 1


async def test_the_word_of_the_client_decides_nothing(baobab: Baobab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baobab.mcp_server.calls.PATIENCE_SECONDS", 0.0)
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    answer = await request_approval(baobab, agent, app_id)
    for responses in (OPENED, {"approval": {"action": "accept", "content": {"approved": True}}}, {}):
        still = await resume_call(baobab, agent, app_id, answer, responses)
        assert still.result["isError"] is True
        assert read_refusal(still.result)["code"] == "APPROVAL_REQUIRED"
    assert await get_value(baobab, app_id, "visits") is None


async def test_a_person_who_does_not_look_leaves_the_call_waiting(baobab: Baobab) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    answer = await request_approval(baobab, agent, app_id)
    declined_answer = await resume_call(baobab, agent, app_id, answer, {"approval": {"action": "decline"}})
    assert read_refusal(declined_answer.result)["details"]["approval_id"] == parse_approval_id(answer)
    assert await get_value(baobab, app_id, "visits") is None


async def test_a_database_that_is_away_while_a_call_waits_is_an_outage(
    baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    answer = await request_approval(baobab, agent, app_id)

    async def fail(*_: Any) -> None:
        raise DatabaseUnavailable("ConnectionRefusedError", "nobody listens")

    monkeypatch.setattr(baobab.application.services.approvals, "wait_for_outcome", fail)
    assert read_refusal((await resume_call(baobab, agent, app_id, answer)).result)["code"] == "SERVICE_UNAVAILABLE"


@pytest.mark.own_installation
async def test_a_state_that_was_used_is_refused_and_nothing_runs_again(baobab: Baobab) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    answer = await request_approval(baobab, agent, app_id)
    await decide_approval(baobab, parse_approval_id(answer))
    await resume_call(baobab, agent, app_id, answer)
    for _ in range(2):
        error = (await resume_call(baobab, agent, app_id, answer)).error
        assert error["code"] == -32602
        assert error["data"]["code"] == "APPROVAL_STATE_SPENT"
        assert error["data"]["remediation"]
    assert await get_value(baobab, app_id, "visits") == 1
    pending = await baobab.client.get("/v1/approvals?status=pending", headers=baobab.owner)
    assert pending.json()["approvals"] == []


@pytest.mark.parametrize("change", ["arguments", "tool", "caller", "tampered", "forged"])
async def test_a_state_is_good_for_its_own_call_alone(baobab: Baobab, change: str) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    answer = await request_approval(baobab, agent, app_id)
    await decide_approval(baobab, parse_approval_id(answer))
    changes: dict[str, Any] = {}
    match change:
        case "arguments":
            changes = {"arguments": {"app_id": app_id, "key": "other"}}
        case "tool":
            changes = {"name": "kv_decr"}
        case "caller":
            agent = await create_approval_key(baobab)
        case "tampered":
            changes = {"requestState": answer.result["requestState"][:-4] + "AAAA"}
        case "forged":
            changes = {"requestState": parse_approval_id(answer)}
    refusal = (await resume_call(baobab, agent, app_id, answer, **changes)).error
    assert refusal["code"] == -32602
    assert refusal["data"]["remediation"]


@pytest.mark.parametrize(("era", "capabilities"), [(MODERN, FORMS_ONLY), (MODERN, {}), (EARLIER, {})])
async def test_a_client_that_shows_no_addresses_is_told_in_words(
    baobab: Baobab, era: str, capabilities: dict[str, Any]
) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    reply = await send_message(
        baobab, "tools/call", increment_call(app_id), by=agent, era=era, capabilities=capabilities
    )
    assert reply.result["isError"] is True
    assert "/console/approvals/appr_" in reply.result["content"][0]["text"]


async def test_a_call_that_could_only_fail_is_refused_at_once(baobab: Baobab) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    refusal = read_refusal(await call_tool(baobab, "kv_flush", {"app_id": app_id}, by=agent))
    assert refusal["code"] == "confirm_required"
    arguments = {"key_id": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"}
    refusal = read_refusal(await call_tool(baobab, "api_keys_revoke", arguments, by=agent))
    assert refusal["code"] != "APPROVAL_REQUIRED"
    waiting = await call_tool(baobab, "approvals_list", {}, by=agent)
    assert waiting["structuredContent"]["approvals"] == []
    over_rest = await baobab.client.post(f"/v1/{app_id}/kv/_flush", json={}, headers=agent)
    assert over_rest.status_code == 400
    result = await call_tool(baobab, "kv_flush", {"app_id": app_id, "confirm": True}, by=agent)
    assert read_refusal(result)["code"] == "APPROVAL_REQUIRED"


async def test_the_outcome_of_an_approved_call_is_told_though_the_call_would_fail_by_now(baobab: Baobab) -> None:
    agent, member = await create_approval_key(baobab), await create_person(baobab, "Eve", role="member")
    call = {"organization_id": await get_first_organisation(baobab), "account_id": member.id}
    refusal = read_refusal(await call_tool(baobab, "organisations_remove_member", call, by=agent))
    assert (await decide_approval(baobab, refusal["details"]["approval_id"])).status_code == 200
    assert await wait_for_status(baobab, refusal["details"]["approval_id"]) == "executed"
    assert not (await call_tool(baobab, "organisations_remove_member", call, by=agent))["isError"]
    # Told once: the same call made again is a new one, and can only fail.
    again = read_refusal(await call_tool(baobab, "organisations_remove_member", call, by=agent))
    assert again["code"] not in ("APPROVAL_REQUIRED", "APPROVED_CALL_FAILED")


async def test_one_approval_serves_the_same_call_through_every_interface(baobab: Baobab) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    over_mcp = read_refusal(await call_tool(baobab, "kv_put", {"app_id": app_id, "key": "a", "value": 1}, by=agent))
    over_rest = await baobab.client.put(f"/v1/{app_id}/kv/a", json={"value": 1}, headers=agent)
    assert over_rest.status_code == 428
    assert over_rest.json()["approval_id"] == over_mcp["details"]["approval_id"]
