"""Remembered conversations: whose they are, what a model is told of them, and in which order they stand."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Text, cast, func, insert, select

from baobab import composition
from baobab.runtime.agents.tables import checkpoints, events, messages, runs, threads, writes
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.providers import build_own_server
from baobab.settings import load_settings
from baobab.storage.sql.sqlite_connection import SqliteConnection
from baobab.tools.core.auth.callers import Account, Anonymous, AppKey
from tests.backends import prepare_data, release_data
from tests.clock import FixedClock
from tests.jobs import run_due_jobs
from tests.runtime.gateway.upstream import CannedAnswer, Upstream, start_upstream
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_waiting import build_model
from tests.tools.conftest import ToolHarness

DONE = {"type": "end", "output_template": "ok"}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ToolHarness]:
    clock = FixedClock()
    settings = load_settings({**prepare_data(tmp_path), "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}, data=tmp_path)
    async with composition.open_application(settings, clock=clock) as application:
        yield ToolHarness(application.services, application.registry, clock, tmp_path)
    release_data(tmp_path)


@pytest.fixture
async def provider(agency: Agency) -> AsyncIterator[Upstream]:
    """Where `lab/m` asks: what was sent there stands in `requests`."""
    async with start_upstream() as fake:
        set_behaviour(agency, fake, "ok")
        yield fake


def set_behaviour(agency: Agency, fake: Upstream, name: str) -> None:
    agency.harness.services.part(Gateway).add_provider(
        build_own_server("lab", f"{fake.url}/v1", "key"), [build_model(name)]
    )


def chat_graph(**node: Any) -> dict[str, Any]:
    chat = {"type": "llm", "input_template": "{{ input.say }}", "output_key": "answer", "remembers": True, **node}
    return build_graph({"chat": chat, "done": DONE}, ("chat", "done"))


async def send_text(agency: Agency, text: str, by: Any = None, thread: str = "t", **more: Any) -> dict[str, Any]:
    run = await agency.run_agent("chat", by, input={"say": text, **more}, thread_id=thread)
    assert run["status"] == "completed", run
    return run


def last_messages(fake: Upstream) -> list[tuple[str, str]]:
    """Returns the messages of the latest request to the model."""
    return [(message["role"], message.get("content") or "") for message in fake.requests[-1].json["messages"]]


def last_user_texts(fake: Upstream) -> list[str]:
    return [text for role, text in last_messages(fake) if role == "user"]


async def list_messages(agency: Agency) -> list[Any]:
    async with agency.harness.services.database.reading() as connection:
        return list((await connection.execute(select(messages).order_by(messages.c.position))).all())


async def test_the_system_prompt_is_sent_once_and_is_the_present_one(agency: Agency, provider: Upstream) -> None:
    await agency.create_agent("chat", chat_graph(system_prompt="Be brief."), default_model="lab/m")
    for number in range(3):
        await send_text(agency, f"turn {number}")
    new_graph = chat_graph(system_prompt="Be long.")
    await agency.harness.call("agents_update", agency.owner, app_id=agency.app_id, name="chat", graph_spec=new_graph)
    await send_text(agency, "turn 3")
    assert [text for role, text in last_messages(provider) if role == "system"] == ["Be long."]
    assert last_user_texts(provider) == [f"turn {number}" for number in range(4)]
    assert [message.message["role"] for message in await list_messages(agency)] == ["user", "assistant"] * 4


async def test_a_turn_that_takes_another_branch_loses_nothing(agency: Agency, provider: Upstream) -> None:
    spec = chat_graph()
    spec["nodes"]["other"] = {**spec["nodes"]["chat"], "input_template": "Other: {{ input.say }}"}
    spec["nodes"]["choose"] = {"type": "llm", "input_template": "Choose.", "output_key": "chosen"}
    spec["entry"] = "choose"
    other = {"from": "choose", "to": "other", "when": {"==": [{"var": "input.other"}, True]}}
    spec["edges"] = [other, {"from": "choose", "to": "chat"}, *spec["edges"], {"from": "other", "to": "done"}]
    await agency.create_agent("chat", spec, default_model="lab/m")
    await send_text(agency, "one", other=False)
    await send_text(agency, "two", other=True)
    await send_text(agency, "three", other=False)
    assert last_user_texts(provider) == ["one", "three"]
    await send_text(agency, "four", other=True)
    assert last_user_texts(provider) == ["Other: two", "Other: four"]


async def test_a_turn_that_waits_keeps_its_own_messages_together_and_loses_no_other(
    agency: Agency, provider: Upstream
) -> None:
    tools = [{"source": "builtin", "name": "interrupt"}]
    spec = chat_graph(tools=tools, on_denied="tell") | {"tools": {"builtin": ["interrupt"]}}
    await agency.create_agent("chat", spec, default_model="lab/m")
    provider.canned_answers["ask"] = answer_with_call("interrupt", '{"reason": "Go on?"}')
    set_behaviour(agency, provider, "said:ask")
    waiting = await agency.run_agent("chat", input={"say": "first"}, thread_id="t")
    assert waiting["status"] == "paused", waiting
    set_behaviour(agency, provider, "ok")
    await send_text(agency, "second")
    decision = await agency.decide("chat", waiting["id"])
    assert decision["status"] == "completed", decision
    # A turn goes on with what it was told when it began.
    assert last_user_texts(provider) == ["first"]
    await send_text(agency, "third")
    assert last_user_texts(provider) == ["second", "first", "third"]
    roles = [role for role, _ in last_messages(provider)]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant", "user"]


async def test_a_conversation_belongs_to_the_person_whatever_key_they_come_with(
    agency: Agency, provider: Upstream
) -> None:
    await agency.create_agent("chat", chat_graph(), default_model="lab/m", visibility="authenticated")
    owner = agency.owner
    keys = []
    for name in ("old", "new"):
        result = await agency.harness.call("api_keys_create", owner, name=name)
        keys.append(await agency.harness.authenticate(result["key"]))
    old, new = keys
    assert isinstance(old, Account)
    await send_text(agency, "by the old key", old)
    await send_text(agency, "by the new key", new)
    assert last_user_texts(provider) == ["by the old key", "by the new key"]
    await send_text(agency, "by a user", agency.end_user("ada"))
    assert last_user_texts(provider) == ["by a user"]
    await send_text(
        agency, "by another app key", AppKey(agency.app_id, str(getattr(new, "key_id", "")), owner.account_id)
    )
    assert last_user_texts(provider) == ["by the old key", "by the new key", "by another app key"]


async def test_a_visitor_is_known_by_its_id_and_not_by_its_address(agency: Agency, provider: Upstream) -> None:
    await agency.create_agent(
        "chat",
        chat_graph(),
        default_model="lab/m",
        visibility="public",
        safety_acknowledged=True,
        dedupe_window_seconds=60,
    )

    async def visit(text: str, ip: str, **more: Any) -> dict[str, Any]:
        arguments = {
            "app_id": agency.app_id,
            "name": "chat",
            "input": {"say": text},
            "thread_id": "t",
            "ip": ip,
            **more,
        }
        run: dict[str, Any] = await agency.harness.call("agents_public_run", Anonymous(agency.app_id), **arguments)
        await run_due_jobs(agency.harness)
        return run

    first = await visit("one", "192.0.2.1")
    stranger = await visit("who else", "192.0.2.1")
    assert last_user_texts(provider) == ["who else"]
    assert first["visitor_id"] != stranger["visitor_id"]
    again = await visit("two", "198.51.100.7", visitor_id=first["visitor_id"])
    assert last_user_texts(provider) == ["one", "two"]
    assert again["visitor_id"] == first["visitor_id"]


async def test_what_a_model_is_told_is_bounded_by_whole_turns(agency: Agency, provider: Upstream) -> None:
    tools = [{"source": "builtin", "name": "kv_scan"}]
    spec = chat_graph(tools=tools, remembers_messages=5) | {"tools": {"builtin": ["kv_scan"]}}
    await agency.create_agent("chat", spec, default_model="lab/m", taint_checks=False)
    await send_text(agency, "one")
    await send_text(agency, "two")
    set_behaviour(agency, provider, "tools:1")
    await send_text(agency, "three")
    set_behaviour(agency, provider, "ok")
    await send_text(agency, "four")
    # Of six messages in two turns five would fit: a call never stands without its result.
    roles = [role for role, _ in last_messages(provider)]
    assert roles == ["user", "assistant", "tool", "assistant", "user"], last_messages(provider)
    assert last_user_texts(provider) == ["three", "four"]


async def test_a_turn_that_is_too_large_is_remembered_without_its_calls(agency: Agency, provider: Upstream) -> None:
    tools = [{"source": "builtin", "name": "kv_scan"}]
    spec = chat_graph(tools=tools, remembers_messages=3) | {"tools": {"builtin": ["kv_scan"]}}
    await agency.create_agent("chat", spec, default_model="lab/m", taint_checks=False)
    set_behaviour(agency, provider, "tools:1")
    await send_text(agency, "one")
    set_behaviour(agency, provider, "ok")
    await send_text(agency, "two")
    assert [role for role, _ in last_messages(provider)] == ["user", "assistant", "user"]


async def test_a_long_thread_costs_a_turn_no_more_than_a_short_one(agency: Agency, provider: Upstream) -> None:
    await agency.create_agent("chat", chat_graph(remembers_messages=4), default_model="lab/m")
    turn_sizes = []
    for number in range(60):
        run = await send_text(agency, f"turn {number:02}")
        turn_sizes.append(await _measure_rows(agency, run["id"]))
    assert last_user_texts(provider) == ["turn 57", "turn 58", "turn 59"]
    assert [rows for rows, _ in turn_sizes[-1]] == [rows for rows, _ in turn_sizes[5]]
    # How long a call took is written down too, in one digit or in two.
    assert all(abs(late - early) < 10 for (_, late), (_, early) in zip(turn_sizes[-1], turn_sizes[5], strict=True))
    assert len(await list_messages(agency)) == 120
    async with agency.harness.services.database.reading() as connection:
        assert (await connection.execute(select(threads.c.last_position))).scalars().all() == [120]


async def _measure_rows(agency: Agency, run_id: str) -> list[tuple[int, int]]:
    """Rows and bytes that a run has left: of its checkpoints, what its calls returned, its events and its messages."""
    columns = (
        (checkpoints.c.thread_id, checkpoints.c.checkpoint),
        (writes.c.thread_id, writes.c.value),
        (events.c.run_id, events.c.payload),
        (messages.c.run_id, messages.c.message),
    )
    sizes = []
    async with agency.harness.services.database.reading() as connection:
        for of, value in columns:
            size = func.coalesce(func.sum(func.length(cast(value, Text))), 0)
            rows, size = (await connection.execute(select(func.count(), size).where(of == run_id))).one()
            sizes.append((rows, size))
    return sizes


async def test_runs_that_have_ended_cost_a_start_nothing(steps: list[int], agency: Agency) -> None:
    await agency.create_agent("chat", chat_graph(), default_model="baobab/echo", max_concurrent_runs=5)
    await send_text(agency, "first")
    database = agency.harness.services.database
    async with database.reading() as connection:
        run_row = dict((await connection.execute(select(runs))).mappings().one())
    few = await _steps_of_a_start(steps, agency)
    async with database.writing() as connection:
        await connection.execute(insert(runs), [{**run_row, "id": str(number)} for number in range(5000)])
    assert await _steps_of_a_start(steps, agency) <= few + 20


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many hundreds of steps SQLite has made; none on other databases. Before an installation is opened."""
    counter = [0]

    def count(_: SqliteConnection) -> bool:
        counter[0] += 1
        return False

    monkeypatch.setattr("baobab.storage.sql.sqlite_connection._BUDGET", 100)
    monkeypatch.setattr(SqliteConnection, "_must_stop", count)
    return counter


async def _steps_of_a_start(steps: list[int], agency: Agency) -> int:
    before = steps[0]
    await agency.start_run("chat", input={"say": str(before)}, thread_id="t")
    step_count = steps[0] - before
    await run_due_jobs(agency.harness)
    return step_count


def answer_with_call(tool: str, arguments: str) -> CannedAnswer:
    """An answer that calls a tool."""
    call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    answer = {"id": "a", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    answer["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return CannedAnswer(json.dumps(answer).encode())


@pytest.mark.usefixtures("provider")
async def test_conversations_are_listed_for_whom_they_belong_to_the_latest_first(agency: Agency) -> None:
    await agency.create_agent("chat", chat_graph(), default_model="lab/m", visibility="authenticated")
    ada, bob = agency.end_user("ada"), agency.end_user("bob")
    for by, thread in ((ada, "one"), (ada, "two"), (bob, "his"), (ada, "three"), (ada, "one"), (agency.owner, "own")):
        await send_text(agency, "Hello", by, thread)
        agency.harness.clock.advance(1)
    about = {"app_id": agency.app_id, "name": "chat"}
    page = await agency.harness.call("agents_threads_list", ada, **about, limit=2)
    assert [(each["thread_id"], each["messages"]) for each in page["threads"]] == [("one", 4), ("three", 2)]
    rest = await agency.harness.call("agents_threads_list", ada, **about, limit=2, cursor=page["next_cursor"])
    assert [each["thread_id"] for each in rest["threads"]] == ["two"]
    assert "next_cursor" not in rest
    lists: dict[str | None, list[str]] = {None: ["own"], "bob": ["his"], "eve": []}
    for user_id, ids in lists.items():
        answer = await agency.harness.call("agents_threads_list", agency.owner, **about, user_id=user_id)
        assert [each["thread_id"] for each in answer["threads"]] == ids
    refusal = await agency.catch_refusal("agents_threads_list", bob, **about, user_id="ada")
    assert refusal.status == 403
