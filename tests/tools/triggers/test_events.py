"""What triggers are told of: keys, memory, mails, accounts at other services, meetings and users."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from baobab.runtime.jobs.job_tables import events, jobs
from baobab.storage.kv.errors import StoreUnavailable
from tests.jobs import run_due_jobs
from tests.people import create_person, get_first_organisation
from tests.tools.ai.meetings.test_forwarding import Receiver, start_receiver
from tests.tools.integrations.conftest import Browser
from tests.tools.mail.test_delivery import Relay, open_relay
from tests.tools.triggers.conftest import House, open_house

USER = "11111111-1111-4111-8111-111111111111"
PERSON = {"email": "ada@mail.example", "password": "correct Horse 7!"}


def read_events(receiver: Receiver) -> list[Any]:
    return [json.loads(body) for _, body in receiver.requests]


async def count_waiting(house: House) -> int:
    """How many events and jobs are stored that a write of a key may have left."""
    total = 0
    async with house.application.services.database.reading() as connection:
        of_events = select(func.count()).where(events.c.type == "key.changed")
        total += int((await connection.execute(of_events)).scalar_one())
        of_kv = select(func.count()).where(jobs.c.kind == "kv_tell_later")
        return total + int((await connection.execute(of_kv)).scalar_one())


async def test_only_keys_that_begin_as_the_trigger_says_are_told_with_their_value(
    house: House, receiver: Receiver
) -> None:
    await house.set_trigger("orders", event="key.changed", prefix="order:", webhook=receiver.url)
    calls: list[tuple[str, str, Any]] = [
        ("PUT", "order:1", {"value": {"status": "paid"}}),
        ("PUT", "cart:1", {"value": 1}),
        ("POST", "order:2/incr", {"by": 2}),
        ("POST", "order:2/decr", {}),
        ("POST", "order:3/setnx", {"value": "a"}),
        ("POST", "order:3/setnx", {"value": "b"}),
        ("POST", "order:3/cas", {"expected": "a", "next": "c"}),
        ("POST", "order:3/cas", {"expected": "a", "next": "d"}),
        ("POST", "order:3/expire", {"ttl": 60}),
        ("POST", "order:3/expire", {"ttl": 0}),
        ("DELETE", "order:1", None),
        ("DELETE", "order:1", None),
        ("DELETE", "cart:1", None),
    ]
    for method, path, body in calls:
        answer = await house.client.request(method, f"/v1/{house.app}/kv/{path}", json=body, headers=house.owner)
        assert answer.is_success, answer.text
    batch = [{"op": "set", "key": "order:4", "value": 4}, {"op": "get", "key": "order:4"}, {"op": "set", "key": "_"}]
    batch += [{"op": "del", "key": "order:4"}, {"op": "del", "key": "order:5"}, {"op": "set", "key": "x", "value": 1}]
    await house.request("POST", "/kv/_batch", json={"ops": batch})
    await house.advance()
    told_events = [
        (each["data"]["key"], each["data"]["change"], each["data"]["value"]) for each in read_events(receiver)
    ]
    assert sorted(told_events, key=str) == sorted(
        [
            ("order:1", "stored", {"status": "paid"}),
            ("order:2", "stored", 2),
            ("order:2", "stored", 1),
            ("order:3", "stored", "a"),
            ("order:3", "stored", "c"),
            ("order:3", "deleted", None),
            ("order:1", "deleted", None),
            ("order:4", "stored", 4),
            ("order:4", "deleted", None),
        ],
        key=str,
    )
    # The jobs that would tell of them after a crash have nothing left to do.
    await house.advance(60)
    assert len(receiver.requests) == len(told_events)


async def test_keys_for_which_nobody_waits_leave_no_event_and_no_job(house: House, receiver: Receiver) -> None:
    await house.request("PUT", "/kv/order:1", 204, json={"value": 1})
    await house.set_trigger("orders", event="key.changed", prefix="order:", webhook=receiver.url)
    await house.request("PUT", "/kv/cart:1", 204, json={"value": 1})
    await house.request("POST", "/triggers/orders/pause")
    await house.request("PUT", "/kv/order:1", 204, json={"value": 2})
    assert await count_waiting(house) == 0


@pytest.mark.parametrize("body", [{}, {"prefix": "order:", "event": "user.signed_up"}], ids=["none", "of_users"])
async def test_a_prefix_belongs_to_events_of_keys(house: House, body: Any) -> None:
    answer = await house.request(
        "PUT", "/triggers/orders", 400, json={"event": "key.changed", "webhook": "https://hook.example/", **body}
    )
    assert answer["error"]["details"]["field"] == "prefix"


async def test_a_key_whose_write_was_not_seen_to_its_end_is_told_later_as_it_is_then(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.set_trigger("orders", event="key.changed", prefix="", webhook=receiver.url)
    [stores] = house.application.services.regions.values()
    engine = stores.kv
    write = engine.put

    async def write_and_fail(*arguments: Any) -> None:
        await write(*arguments)
        raise StoreUnavailable("it does not answer")

    monkeypatch.setattr(engine, "put", write_and_fail)
    answer = await house.client.put(f"/v1/{house.app}/kv/order:1", json={"value": 7}, headers=house.owner)
    assert answer.status_code == 503
    await house.advance()
    assert receiver.requests == []
    await house.advance(31)
    [event] = read_events(receiver)
    assert event["data"] == {"key": "order:1", "change": "stored", "value": 7}


async def test_a_key_that_a_user_wrote_taints_and_a_loop_of_keys_ends(house: House) -> None:
    await house.request(
        "PUT", "/kv/_expose", 204, json={"rules": [{"pattern": "note:**", "read": "authed", "write": "authed"}]}
    )
    await house.make_agent("stranger", key="out", value="{{input}}")
    await house.set_trigger("notes", event="key.changed", prefix="note:", agent="stranger", input={"a": 1})
    headers = await house.user_headers(house.app, USER)
    await house.request("PUT", "/kv/note:1", 204, json={"value": "hi"}, headers=headers)
    await house.advance()
    [run] = await house.list_runs("stranger")
    assert (run["status"], run["tainted"]) == ("paused", True)

    await house.make_agent("turn", key="loop:1", value="{{input}}")
    await house.set_trigger("turn", event="key.changed", prefix="loop:", agent="turn", input={"a": 1})
    await house.request("PUT", "/kv/loop:1", 204, json={"value": 0})
    await house.advance(1)
    for _ in range(5):
        await house.approve_all()
        await house.advance(1)
    deliveries = await house.list_deliveries("turn")
    assert [each["status"] for each in deliveries] == ["delivered"] * 5 + ["skipped"]
    assert "looks like a loop" in deliveries[-1]["error"]


async def test_memory_that_changes_is_told_to_the_apps_that_are_linked_to_it(house: House, receiver: Receiver) -> None:
    organisation = await get_first_organisation(house)
    person = await create_person(house, "grace", role="owner", of=organisation)
    headers = {**person.headers, "x-organization-id": organisation}
    await house.set_trigger("memory", event="memory.changed", webhook=receiver.url)

    async def record(title: str) -> None:
        body = {"capability": "record_decision", "payload": {"title": title, "kind": "operational"}}
        answer = await house.client.post("/v1/me/substrate/actions/propose", json=body, headers=headers)
        assert answer.is_success, answer.text
        await house.advance()

    await record("We ship on Mondays")
    assert receiver.requests == []
    answer = await house.client.post(f"/v1/me/apps/{house.app}/substrate-link", json={}, headers=headers)
    assert answer.is_success, answer.text
    await record("We ship on Tuesdays")
    [event] = read_events(receiver)
    assert event["subject"] == f"memory:{organisation}"
    assert (event["data"]["count"], event["data"]["tables"]) == (2, ["action_ledger", "decisions"])
    assert {each["change"] for each in event["data"]["changes"]} == {"insert"}
    assert "Tuesdays" not in json.dumps(event)
    [delivery] = await house.list_deliveries("memory")
    assert delivery["tainted"] is False
    await house.client.delete(f"/v1/me/apps/{house.app}/substrate-link", headers=headers)
    await record("We ship on Fridays")
    assert len(receiver.requests) == 1


async def test_a_mail_that_its_server_refuses_for_good_is_told(tmp_path: Path) -> None:
    async with open_relay(Relay("550 no such mailbox")) as port, start_receiver() as receiver:
        mail: dict[str, Any] = {"BAOBAB_SMTP_URL": f"smtp://127.0.0.1:{port}", "BAOBAB_MAIL_FROM": "apps@example.org"}
        async with open_house(tmp_path, **mail) as house:
            await house.set_trigger("bounced", event="mail.failed", webhook=receiver.url)
            assert (await house.client.post(f"/auth/{house.app}/signup", json=PERSON)).is_success
            await house.advance()
            await house.advance()
            [event] = read_events(receiver)
            assert (event["data"]["to"], event["data"]["reason"]) == (PERSON["email"], "550 no such mailbox")


async def test_accounts_that_users_connect_and_disconnect_are_told(house: House, receiver: Receiver) -> None:
    for name in ("connected", "disconnected"):
        await house.set_trigger(name, event=f"integration.{name}", webhook=receiver.url)
    user = await house.user_headers(house.app, USER)
    await house.request("POST", "/integrations/configure", json={"toolkit": "gmail"})
    answer = await house.request("POST", "/integrations/connect", json={"toolkit": "gmail"}, headers=user)
    await Browser(house.client).connect(answer["authUrl"])
    [account] = (await house.request("GET", "/integrations/connections", headers=user))["connections"]
    await house.request("DELETE", f"/integrations/connections/{account['id']}", 204, headers=user)
    await house.advance()
    told_events = {each["type"]: each["data"] for each in read_events(receiver)}
    assert sorted(told_events) == ["integration.connected", "integration.disconnected"]
    for data in told_events.values():
        assert (data["toolkit"], data["user_id"], data["connection_id"]) == ("gmail", USER, account["id"])


async def test_a_bot_that_joins_and_ends_a_meeting_is_told_once_of_each(house: House, receiver: Receiver) -> None:
    for name in ("joined", "ended", "failed", "transcript_ready"):
        await house.set_trigger(name, event=f"meeting.{name}", webhook=receiver.url)
    body = {"meetingUrl": "https://meet.google.com/abc-defg-hij"}
    bot = await house.request("POST", "/ai/meetings", json=body)
    for _ in range(60):
        await house.advance(5)
    await run_due_jobs(house.application)
    assert sorted(each["type"] for each in read_events(receiver)) == [
        "meeting.ended",
        "meeting.joined",
        "meeting.transcript_ready",
    ]
    assert {each["data"]["bot_id"] for each in read_events(receiver)} == {bot.get("id") or bot["botId"]}


async def test_users_who_sign_in_verify_their_address_and_are_deleted_are_told(
    house: House, receiver: Receiver
) -> None:
    for name in ("signed_up", "signed_in", "verified", "deleted"):
        await house.set_trigger(name, event=f"user.{name}", webhook=receiver.url)
    path = f"/auth/{house.app}"
    assert (await house.client.post(f"{path}/signup", json=PERSON)).is_success
    [mail] = (await house.request("GET", "/auth/outbox"))["mails"]
    [code] = re.findall(r"\b\d{6}\b", mail["text"])
    answer = await house.client.post(f"{path}/verify-email", json={"email": PERSON["email"], "code": code})
    assert answer.is_success, (answer.text, mail)
    assert (await house.client.post(f"{path}/login", json=PERSON)).is_success
    [user] = (await house.request("GET", "/admin/auth/users"))["users"]
    await house.request("DELETE", f"/admin/auth/users/{user['id']}")
    await house.advance()
    counts = Counter(each["type"] for each in read_events(receiver))
    assert counts.pop("user.signed_in") >= 1
    assert counts == {"user.signed_up": 1, "user.verified": 1, "user.deleted": 1}
