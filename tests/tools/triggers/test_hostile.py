"""What goes wrong around triggers: receivers that misbehave, loops, hours that are left out, templates of nothing."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.tools.agents.conftest import build_graph
from tests.tools.ai.meetings.test_forwarding import Receiver
from tests.tools.triggers.conftest import House, open_house

PRIVATE = "10.0.0.7"


@contextlib.asynccontextmanager
async def answer_with(content: bytes | None) -> AsyncIterator[str]:
    """A receiver that answers everything with these bytes; None: never, and it keeps the connection open."""
    is_over = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            if content is None:
                await is_over.wait()
            else:
                writer.write(content)
                await writer.drain()
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    finally:
        is_over.set()
        server.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "time"),
        (b"HTTP/1.1 301 Moved\r\nlocation: https://other.example/\r\ncontent-length: 0\r\n\r\n", "answered 301"),
        (b"\x00\x01 nonsense \xff\r\n\r\n", ""),
        (b"", ""),
    ],
    ids=["hangs", "moved", "nonsense", "silence"],
)
async def test_a_receiver_that_misbehaves_is_tried_again_and_holds_up_nobody(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, content: bytes | None, words: str
) -> None:
    monkeypatch.setattr("baobab.runtime.net.deliveries._SECONDS", 0.3)
    async with answer_with(content) as url:
        await house.set_trigger("bad", event="custom.paid", webhook=url)
        await house.set_trigger("good", event="custom.paid", webhook=receiver.url)
        await house.request("POST", "/events", 202, json={"name": "paid", "data": {"order": 1}})
        await house.advance()
    [delivery] = await house.list_deliveries("bad")
    assert (delivery["status"], delivery["attempts"]) == ("pending", 1)
    assert delivery["error"]
    assert words in delivery["error"]
    assert len(receiver.requests) == 1


async def test_a_receiver_whose_name_leads_into_the_house_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return [PRIVATE]

    monkeypatch.setattr("baobab.runtime.net.egress.system_resolver", resolve)
    async with open_house(tmp_path) as house:
        await house.set_trigger("inside", event="custom.paid", webhook="https://hook.example/")
        await house.request("POST", "/events", 202, json={"name": "paid", "data": {}})
        await house.advance()
        [delivery] = await house.list_deliveries("inside")
        assert (delivery["status"], delivery["answer_status"]) == ("pending", None)
        assert delivery["error"]
        assert PRIVATE not in delivery["error"]


async def test_two_triggers_that_cause_each_other_end_as_a_loop(house: House) -> None:
    for name, other in (("ping", "pong"), ("pong", "ping")):
        node: dict[str, object] = {"type": "tool", "tool_ref": {"source": "builtin", "name": "events_emit"}}
        node |= {"args_template": {"name": other, "data": {"a": "b"}}}
        spec = build_graph({"act": node, "done": {"type": "end"}}, ("act", "done"), tools={"builtin": ["events_emit"]})
        await house.request("POST", "/agents", 201, json={"name": name, "graph_spec": spec})
        await house.set_trigger(name, event=f"custom.{name}", agent=name)
    await house.request("POST", "/events", 202, json={"name": "ping", "data": {}})
    await house.advance(1)
    for _ in range(6):
        await house.approve_all()
        await house.advance(1)
    deliveries = [*await house.list_deliveries("ping"), *await house.list_deliveries("pong")]
    statuses = [each["status"] for each in deliveries]
    assert (statuses.count("delivered"), statuses.count("skipped"), len(statuses)) == (5, 1, 6)
    [skipped] = [each for each in deliveries if each["status"] == "skipped"]
    assert "looks like a loop" in skipped["error"]


async def test_a_filter_that_never_fits_starts_nothing_and_a_test_says_so(house: House, receiver: Receiver) -> None:
    rule = {"and": [{"==": [{"var": "event.data.order"}, 1]}, {"==": [{"var": "event.data.order"}, 2]}]}
    await house.set_trigger("never", event="custom.paid", filter=rule, webhook=receiver.url)
    await house.request("POST", "/events", 202, json={"name": "paid", "data": {"order": 1}})
    await house.advance()
    assert (await house.list_deliveries("never"), receiver.requests) == ([], [])
    outcome = await house.request("POST", "/triggers/never/test", json={"data": {"order": 1}, "run": True})
    assert (outcome["fits"], outcome["problem"], outcome["delivery_id"]) == (False, None, None)


async def test_a_template_that_names_nothing_fails_and_says_what_is_missing(house: House) -> None:
    await house.make_agent()
    await house.set_trigger("paid", event="custom.paid", agent="helper", input={"a": "{{ event.data.customer.name }}"})
    await house.request("POST", "/events", 202, json={"name": "paid", "data": {"order": 1}})
    await house.advance()
    [delivery] = await house.list_deliveries("paid")
    assert delivery["status"] == "failed"
    assert "customer" in delivery["error"]
    outcome = await house.request("POST", "/triggers/paid/test", json={"data": {"order": 1}})
    assert "customer" in outcome["problem"]
    assert await house.list_runs() == []


async def test_a_row_of_a_megabyte_starts_an_agent_with_its_key(house: House) -> None:
    await house.make_agent(key="last", value="{{input.key}}")
    await house.set_trigger(
        "new", event="row.inserted", table="tickets", agent="helper", input={"key": "{{ event.data.key }}"}
    )
    await house.insert(title="x" * 1_000_000)
    await house.advance()
    [delivery] = await house.list_deliveries("new")
    assert (delivery["status"], delivery["payload"]["left_out"]) == ("delivered", ["row"])
    [run] = await house.list_runs()
    assert run["input"] == {"key": {"id": 1}}


@pytest.mark.parametrize(
    ("eve", "schedule", "time_zone", "hours"),
    [
        # 02:30 is left out on the 28th: it counts as 03:30.
        ("2027-03-27T06:00", "30 2 * * *", "Europe/Prague", ["2027-03-28T01:30", "2027-03-29T00:30"]),
        # 02:30 comes twice on the 31st: it counts once, at first.
        ("2027-10-30T06:00", "30 2 * * *", "Europe/Prague", ["2027-10-31T00:30", "2027-11-01T01:30"]),
        # Every hour comes as often as the clock shows it.
        ("2027-10-30T23:30", "0 * * * *", "Europe/Prague", ["2027-10-31T00:00", "2027-10-31T01:00"]),
        ("2027-03-28T00:30", "0 * * * *", "Europe/Prague", ["2027-03-28T01:00", "2027-03-28T02:00"]),
        ("2027-03-13T12:00", "30 2 * * *", "America/New_York", ["2027-03-14T07:30", "2027-03-15T06:30"]),
        ("2027-11-06T12:00", "30 1 * * *", "America/New_York", ["2027-11-07T05:30", "2027-11-08T06:30"]),
        # Lord Howe changes its clocks by half an hour.
        ("2027-04-03T00:00", "45 1 * * *", "Australia/Lord_Howe", ["2027-04-03T14:45", "2027-04-04T15:15"]),
    ],
)
async def test_an_hour_comes_once_on_days_on_which_clocks_are_changed(
    house: House, receiver: Receiver, eve: str, schedule: str, time_zone: str, hours: list[str]
) -> None:
    eve_moment = datetime.fromisoformat(eve).replace(tzinfo=UTC)
    house.clock.advance((eve_moment - house.clock.now()).total_seconds())
    await house.set_trigger("hour", event="schedule", schedule=schedule, time_zone=time_zone, webhook=receiver.url)
    moments = [datetime.fromisoformat(hour).replace(tzinfo=UTC) for hour in hours]
    for moment in moments:
        trigger = await house.request("GET", "/triggers/hour")
        assert datetime.fromisoformat(trigger["next_at"]) == moment
        # A minute before, at the hour, and twice after it.
        house.clock.advance((moment - house.clock.now()).total_seconds() - 60)
        for seconds in (0, 60, 0, 60):
            await house.advance(seconds)
    fired = [json.loads(body)["data"]["scheduled_at"] for _, body in receiver.requests]
    assert fired == [moment.isoformat() for moment in moments]
