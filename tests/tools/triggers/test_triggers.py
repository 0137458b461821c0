"""Triggers: what starts by itself when something happens in an app, over REST."""

import base64
import hmac
import json
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import select

from baobab.tools.mail.tables import mails as mail_table
from tests.people import create_person, get_first_organisation
from tests.tools.agents.conftest import build_graph
from tests.tools.ai.meetings.test_forwarding import Receiver
from tests.tools.triggers.conftest import House

_DAY = 86_400
NEW_TICKET = {"event": "row.inserted", "table": "tickets", "agent": "helper"}


def outcomes(deliveries: list[Any]) -> list[str]:
    return [each["status"] for each in deliveries]


async def test_a_row_starts_an_agent_once_with_the_input_of_its_template(house: House) -> None:
    await house.make_agent()
    answer = await house.set_trigger("new", **NEW_TICKET, input={"ticket": "{{ event.data.row }}"})
    assert (answer["trigger"]["status"], answer["secret"]) == ("active", None)
    assert "through the key" in answer["trigger"]["made_by"]
    await house.insert(title="The lamp is broken", status="open")
    await house.advance()
    [delivery] = await house.list_deliveries("new")
    assert (delivery["status"], delivery["subject"], delivery["error"]) == ("delivered", "tickets:[1]", None)
    [run] = await house.list_runs()
    assert run["id"] == delivery["run_id"]
    assert run["input"] == {"ticket": {"id": 1, "title": "The lamp is broken", "status": "open"}}
    run = (await house.request("GET", f"/agents/helper/runs/{run['id']}"))["run"]
    assert run["started_by_name"] == "trigger:new"
    # The sweep finds nothing that was not told.
    await house.advance(60)
    assert len(await house.list_runs()) == 1


async def test_an_agent_changes_the_row_that_started_it_also_if_its_id_is_a_number(house: House) -> None:
    await house.make_agent(tool="data_update", table="tickets", row_id="{{input.id}}", changes={"status": "seen"})
    await house.set_trigger("new", **NEW_TICKET, input={"id": "{{ event.data.row.id }}"})
    await house.insert(title="The lamp is broken", status="open")
    await house.advance()
    await house.approve_all()
    await house.advance()
    [run] = await house.list_runs()
    assert (run["status"], run["error"]) == ("completed", None)
    [row] = await house.request("GET", "/tickets")
    assert row["status"] == "seen"


async def test_a_filter_sees_old_and_new_values_and_lets_only_what_fits_through(house: House) -> None:
    await house.make_agent()
    is_closed = {"==": [{"var": "event.data.row.status"}, "closed"]}
    was_open = {"==": [{"var": "event.data.old.status"}, "open"]}
    rule = {"and": [is_closed, was_open]}
    await house.set_trigger("closed", event="row.updated", table="tickets", agent="helper", filter=rule)
    await house.insert(title="A", status="open")
    await house.insert(title="B", status="new")
    for number in (1, 2):
        await house.request("PATCH", f"/tickets/{number}", json={"status": "closed"})
    await house.advance()
    [delivery] = await house.list_deliveries("closed")
    assert delivery["payload"]["data"]["old"] == {"id": 1, "title": "A", "status": "open"}
    await house.set_trigger("odd", event="row.updated", table="tickets", agent="helper", filter={"+": ["x", 1]})
    await house.request("PATCH", "/tickets/1", json={"status": "open"})
    await house.advance()
    [odd] = await house.list_deliveries("odd")
    assert (odd["status"], odd["error"].startswith("The filter cannot be evaluated")) == ("failed", True)


async def test_only_what_happens_after_a_trigger_was_made_or_resumed_counts(house: House) -> None:
    await house.make_agent()
    await house.insert(title="before")
    await house.set_trigger("new", **NEW_TICKET)
    await house.insert(title="between")
    await house.advance()
    assert (await house.request("POST", "/triggers/new/pause"))["status"] == "paused"
    await house.insert(title="while it is paused")
    await house.advance()
    await house.request("POST", "/triggers/new/resume")
    await house.insert(title="after")
    await house.advance(10)
    titles = [each["payload"]["data"]["row"]["title"] for each in await house.list_deliveries("new")]
    assert titles == ["between", "after"]


async def test_what_a_user_caused_taints_the_run_whose_writes_then_wait(house: House) -> None:
    await house.make_agent()
    await house.set_trigger("new", **NEW_TICKET)
    users = await house.user_headers(house.app, "5b2f7c9e-8d1a-4c3e-9f60-2a1b3c4d5e6f")
    policy = {"table_name": "tickets", "policy_name": "all", "role": "user", "using_expression": "true"}
    await house.request("POST", "/rls/policies", json=policy)
    await house.insert(users, title="From a user")
    await house.insert(title="Our own")
    await house.advance()
    theirs, own = await house.list_deliveries("new")
    assert (theirs["tainted"], own["tainted"]) == (True, False)
    assert {run["id"]: run["tainted"] for run in await house.list_runs()} == {
        theirs["run_id"]: True,
        own["run_id"]: False,
    }
    answer = await house.client.get("/v1/approvals", headers=house.owner)
    assert all("trigger:new, with the right of" in each["asked_by"] for each in answer.json()["approvals"])


async def test_a_loop_ends_with_a_delivery_that_says_so(house: House) -> None:
    await house.make_agent("echo", "data_insert", table="tickets", values={"title": "Again"})
    await house.set_trigger("loop", event="row.inserted", table="tickets", agent="echo")
    await house.insert(title="The first")
    await house.advance(1)
    for _ in range(5):
        # A run's write waits for a person, so that a loop needs somebody who approves whatever comes.
        await house.approve_all()
        await house.advance(1)
    deliveries = await house.list_deliveries("loop")
    assert outcomes(deliveries) == ["delivered"] * 5 + ["skipped"]
    assert "looks like a loop" in deliveries[-1]["error"]


async def test_a_webhook_is_signed_tried_again_for_a_day_and_sent_again_by_hand(
    house: House, receiver: Receiver
) -> None:
    answer = await house.set_trigger("hook", event="custom.paid", webhook=receiver.url)
    key = base64.b64decode(answer["secret"].removeprefix("whsec_"))
    receiver.statuses = [301, 503]
    answer_of_event = await house.request("POST", "/events", 202, json={"name": "paid", "data": {"order": 17}})
    assert answer_of_event["awaited"] is True
    await house.advance()
    await house.advance(5)
    await house.advance(300)
    [delivery] = await house.list_deliveries("hook")
    assert (delivery["status"], delivery["attempts"], delivery["answer_status"]) == ("delivered", 3, 200)
    headers, body = receiver.requests[-1]
    event = json.loads(body)
    assert (event["type"], event["data"]) == ("custom.paid", {"order": 17})
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.digest(key, content, sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{signature}"
    assert len({request_headers["webhook-id"] for request_headers, _ in receiver.requests}) == 1
    await house.request("POST", f"/triggers/hook/deliveries/{delivery['id']}/send-again", 202)
    await house.advance()
    assert len(receiver.requests) == 4
    assert (await house.set_trigger("hook", event="custom.paid", webhook=receiver.url))["secret"] is None


async def test_a_receiver_that_never_takes_it_fails_after_a_day_and_five_failures_are_mailed_once(
    house: House, receiver: Receiver
) -> None:
    await house.set_trigger("hook", event="custom.paid", webhook=receiver.url)
    receiver.statuses = [500] * 100
    for number in range(6):
        await house.request(
            "POST", "/events", 202, json={"name": "paid", "data": {"order": number}, "id": f"o{number}"}
        )
    await house.request("POST", "/events", 202, json={"name": "paid", "data": {"order": 0}, "id": "o0"})
    for seconds in (0, 5, 300, 1800, 7200, 18_000, 36_000, 21_600):
        await house.advance(seconds)
    deliveries = await house.list_deliveries("hook")
    assert outcomes(deliveries) == ["failed"] * 6
    assert deliveries[0]["error"] == "The receiver answered 500."
    assert (await house.request("GET", "/triggers/hook"))["failures"] == 6
    async with house.application.services.database.reading() as connection:
        mails = (await connection.execute(select(mail_table).where(mail_table.c.template == "trigger_failing"))).all()
    assert len(mails) == 1


async def test_a_trigger_acts_only_while_its_maker_may_make_it_and_says_when_that_has_ended(house: House) -> None:
    await house.make_agent()
    organisation = await get_first_organisation(house)
    admin = await create_person(house, "ada", role="admin", of=organisation)
    await house.request("PUT", "/triggers/new", json=NEW_TICKET, headers=admin.headers)
    path = f"/v1/organizations/{organisation}/members/{admin.id}"
    answer = await house.client.patch(path, json={"role": "member"}, headers=house.owner)
    assert answer.status_code == 200, answer.text
    await house.insert(title="Too late")
    await house.advance()
    assert await house.list_runs() == []
    trigger = await house.request("GET", "/triggers/new")
    assert trigger["status"] == "paused"
    assert "no longer an admin" in trigger["reason"]
    [delivery] = await house.list_deliveries("new")
    assert delivery["status"] == "failed"
    await house.request("POST", "/triggers/new/resume")
    await house.insert(title="In time")
    await house.advance()
    assert len(await house.list_runs()) == 1


async def test_a_schedule_fires_once_at_each_of_its_hours_in_its_time_zone(house: House) -> None:
    await house.make_agent()
    # The clock stands at 08:00 UTC, which is 09:00 in Prague.
    daily = {"event": "schedule", "schedule": "30 9 * * *", "time_zone": "Europe/Prague", "agent": "helper"}
    answer = await house.set_trigger("daily", **daily)
    assert answer["trigger"]["next_at"] == "2027-01-15T08:30:00Z"
    await house.advance(1799)
    assert await house.list_runs() == []
    for _ in range(3):
        await house.advance(1)
    [run] = await house.list_runs()
    assert run["input"]["event"]["data"] == {
        "schedule": "30 9 * * *",
        "timezone": "Europe/Prague",
        "scheduled_at": "2027-01-15T08:30:00+00:00",
    }
    # While no server ran, two ticks were missed: they are not answer up for, unless the trigger says so.
    await house.set_trigger("late", **daily, catch_up=True)
    await house.advance(2 * _DAY + 3600)
    await house.advance(1)
    assert len(await house.list_deliveries("daily")) == 1
    assert outcomes(await house.list_deliveries("late")) == ["delivered"]


async def test_files_users_and_documents_start_something_too(house: House, receiver: Receiver) -> None:
    for event in ("file.stored", "file.deleted", "user.signed_up", "document.ready"):
        await house.set_trigger(event.replace(".", "-").replace("_", "-"), event=event, webhook=receiver.url)
    body = {"filename": "a.txt", "contentType": "text/plain", "content": "The lamp is under warranty."}
    answer = await house.client.post(f"/storage/{house.app}/objects", json=body, headers=house.owner)
    assert answer.status_code < 300, answer.text
    file_id = answer.json().get("id") or answer.json()["objectId"]
    await house.client.delete(f"/storage/{house.app}/{file_id}", headers=house.owner)
    person = {"email": "ada@mail.example", "password": "correct Horse 7!"}
    answer = await house.client.post(f"/auth/{house.app}/signup", json=person)
    assert answer.status_code < 300, answer.text
    await house.request("POST", "/rag/collections", 201, json={"name": "handbook"})
    await house.request("POST", "/rag/collections/handbook/ingest", 202, json={"text": "Lamps have two years."})
    for _ in range(3):
        await house.advance(1)
    events = sorted(json.loads(body)["type"] for _, body in receiver.requests)
    assert events == ["document.ready", "file.deleted", "file.stored", "user.signed_up"]


async def test_runs_and_approvals_start_something_and_a_step_of_another_run_does_not(
    house: House, receiver: Receiver
) -> None:
    for event in ("run.started", "run.paused", "run.ended", "approval.asked", "approval.decided"):
        await house.set_trigger(event.replace(".", "-"), event=event, webhook=receiver.url)
    await house.make_agent("child")
    graph = {"ask": {"type": "agent", "agent": "child", "output_key": "answer"}, "done": {"type": "end"}}
    spec = build_graph(graph, ("ask", "done"))
    await house.request("POST", "/agents", 201, json={"name": "helper", "graph_spec": spec})
    for agent in ("child", "helper"):
        await house.request("POST", f"/agents/{agent}/runs", 201, json={"input": {}})
    await house.advance()
    await house.approve_all()
    for _ in range(3):
        await house.advance(1)
    events = [json.loads(body) for _, body in receiver.requests]
    of_runs = sorted((event["type"], event["data"]["agent"]) for event in events if event["type"].startswith("run."))
    assert of_runs == [
        ("run.ended", "child"),
        ("run.ended", "helper"),
        ("run.paused", "child"),
        ("run.started", "child"),
        ("run.started", "helper"),
    ]
    assert {event["data"]["status"] for event in events if event["type"] == "run.ended"} == {"completed"}
    of_approvals = sorted(event["type"] for event in events if event["type"].startswith("approval."))
    assert of_approvals == ["approval.asked"] * 2 + ["approval.decided"] * 2


async def test_a_test_says_what_would_start_and_starts_it_only_if_asked(house: House) -> None:
    await house.make_agent()
    await house.set_trigger("new", **NEW_TICKET, input={"title": "{{ event.data.row.subject }}"})
    outcome = await house.request("POST", "/triggers/new/test", json={})
    assert (outcome["fits"], outcome["problem"]) == (
        True,
        "The input cannot be made: there is no event.data.row.subject.",
    )
    data = {"table": "tickets", "row": {"subject": "Hello"}}
    outcome = await house.request("POST", "/triggers/new/test", json={"data": data})
    assert (outcome["input"], outcome["delivery_id"]) == ({"title": "Hello"}, None)
    assert await house.list_runs() == []
    outcome = await house.request("POST", "/triggers/new/test", json={"data": data, "run": True})
    await house.advance()
    [delivery] = await house.list_deliveries("new")
    assert (delivery["id"], delivery["tainted"]) == (outcome["delivery_id"], True)
    assert len(await house.list_runs()) == 1


async def test_an_agent_that_was_deleted_is_named_as_the_reason(house: House) -> None:
    await house.make_agent()
    await house.set_trigger("new", **NEW_TICKET)
    await house.request("DELETE", "/agents/helper", 204)
    await house.insert(title="A")
    await house.advance()
    [delivery] = await house.list_deliveries("new")
    assert (delivery["status"], delivery["error"].startswith("There is no agent")) == ("failed", True)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"event": "row.exploded", "agent": "helper"}, "event"),
        ({"event": "row.inserted", "agent": "helper"}, "table"),
        ({"event": "custom.x", "table": "tickets", "agent": "helper"}, "table"),
        ({"event": "schedule", "agent": "helper"}, "schedule"),
        ({"event": "schedule", "schedule": "0 0 30 2 *", "agent": "helper"}, "schedule"),
        ({"event": "schedule", "schedule": "0 7 * * *", "time_zone": "Mars/One", "agent": "helper"}, "schedule"),
        ({"event": "custom.x"}, "agent"),
        ({"event": "custom.x", "agent": "helper", "webhook": "https://hooks.example/"}, "agent"),
        ({"event": "custom.x", "webhook": "https://hooks.example/", "input": {}}, "input"),
        ({"event": "custom.x", "agent": "helper", "input": {"a": "{{ state.x }}"}}, "input"),
        ({"event": "custom.x", "agent": "helper", "filter": {"nonsense": 1}}, "filter.nonsense"),
        ({"event": "custom.x", "agent": "helper", "filter": {"var": "row.x"}}, "filter.var"),
        ({"event": "custom.x", "webhook": "http://169.254.169.254/"}, "webhook"),
    ],
)
async def test_what_is_not_valid_is_refused_with_the_field(house: House, body: Any, field: str) -> None:
    answer = await house.request("PUT", "/triggers/bad", 400, json=body)
    assert (answer["error"]["code"], answer["error"]["details"]["field"]) == ("TRIGGER_INVALID", field)


async def test_a_large_row_is_told_by_its_key(house: House, receiver: Receiver) -> None:
    await house.set_trigger("new", event="row.inserted", table="tickets", webhook=receiver.url)
    await house.insert(title="x" * 200_000)
    await house.advance()
    [(_, body)] = receiver.requests
    event = json.loads(body)
    assert (event["data"]["key"], event["data"]["row"], event["left_out"]) == ({"id": 1}, None, ["row"])


async def test_deliveries_of_an_app_beyond_its_bound_wait_for_their_turn_and_say_so(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baobab.tools.triggers.jobs.MOST_AT_ONCE", 2)
    await house.set_trigger("hook", event="custom.x", webhook=receiver.url)
    for _ in range(8):
        await house.request("POST", "/events", 202, json={"name": "x", "data": {}})
    await house.advance()
    assert len(receiver.requests) == 2
    waiting = [each for each in await house.list_deliveries("hook") if each["status"] == "pending"]
    words = "An app starts at most 600 deliveries a minute; this one waits for its turn."
    assert [each["error"] for each in waiting] == [words] * 6
    assert (await house.request("GET", "/triggers/hook"))["waiting"] == 6
    # Another app of the organisation has its own.
    other = await house.create_app()
    answer = await house.client.put(
        f"/v1/{other}/triggers/hook", json={"event": "custom.x", "webhook": receiver.url}, headers=house.owner
    )
    assert answer.is_success, answer.text
    answer = await house.client.post(f"/v1/{other}/events", json={"name": "x", "data": {}}, headers=house.owner)
    await house.advance()
    assert len(receiver.requests) == 3
    for _ in range(4):
        await house.advance(21)
    assert len(receiver.requests) == 9
    assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 9
