"""Runs and conversations are erased: after their time, and when somebody asks for it."""

from typing import Any

from sqlalchemy import Table, func, select

from baobab.runtime.agents.tables import checkpoints, events, messages, pieces, runs, threads, writes
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.auth.callers import Anonymous, Caller
from tests.jobs import settled
from tests.tools.agents.conftest import Agency, graph
from tests.tools.agents.test_models_and_tools import asking

KEPT = (runs, events, checkpoints, pieces, writes, messages, threads, approvals)
DAY_SECONDS = 86_400


async def rows(agency: Agency) -> dict[str, int]:
    """How many rows there are of what runs leave, by table; without those that have none."""

    async def count(table: Table) -> int:
        async with agency.house.services.database.reading() as connection:
            return int((await connection.execute(select(func.count()).select_from(table))).scalar_one())

    counted = {table.name: await count(table) for table in KEPT}
    return {name: number for name, number in counted.items() if number}


async def talk(agency: Agency, by: Caller | None = None, thread: str = "t") -> str:
    """A run that has asked a person, was told to go on, and is remembered."""
    text = {"say": '/call interrupt {"reason": "Go on?"}\n/say ' + "Said. " * 200}
    run = await agency.run("a", by, input=text, thread_id=thread)
    run = await agency.decide("a", run["id"])
    assert run["status"] == "completed", run
    run_id: str = run["id"]
    return run_id


async def agent(agency: Agency, **settings: Any) -> None:
    await agency.agent("a", asking("{{ input.say }}", "interrupt", remembers=True), **settings)


async def test_a_run_is_erased_with_all_that_was_kept_of_it(agency: Agency) -> None:
    await agent(agency)
    run_id = await talk(agency)
    assert {"agent_runs", "agent_events", "agent_checkpoints", "agent_messages", "approvals"} < set(await rows(agency))
    named = {"app_id": agency.app_id, "name": "a", "id": run_id}
    await agency.house.use("agents_runs_delete", agency.owner, **named)
    assert await rows(agency) == {"agent_threads": 1}
    assert (await agency.refused("agents_runs_get", agency.owner, **named)).status == 404


async def test_a_run_under_way_is_not_erased(agency: Agency) -> None:
    await agent(agency)
    run = await agency.run("a", input={"say": '/call interrupt {"reason": "Go on?"}'})
    named = {"app_id": agency.app_id, "name": "a", "id": run["id"]}
    refused = await agency.refused("agents_runs_delete", agency.owner, **named)
    assert (refused.status, refused.code, refused.details) == (409, "run_under_way", {"status": "paused"})
    assert (await agency.decide("a", run["id"]))["status"] == "completed"


async def test_runs_below_are_erased_with_the_run_above_and_not_before_it_has_ended(agency: Agency) -> None:
    await agent(agency)
    below = {"type": "agent", "agent": "a", "input_template": {"say": "/say Hello."}, "output_key": "told"}
    hold = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "interrupt"},
        "args_template": {"reason": "Go on?"},
    }
    nodes = {"below": below, "hold": hold, "done": {"type": "end"}}
    await agency.agent("b", graph(nodes, ("below", "hold"), ("hold", "done"), tools={"builtin": ["interrupt"]}))
    run = await agency.run("b")
    while run["status"] != "paused":
        run = await agency.rests("b", run["id"])
    listed = await agency.house.use("agents_runs_list", agency.owner, app_id=agency.app_id, name="a")
    (child,) = listed["runs"]
    refused = await agency.refused("agents_runs_delete", agency.owner, app_id=agency.app_id, name="a", id=child["id"])
    assert refused.code == "run_under_way"
    await agency.decide("b", run["id"])
    await agency.house.use("agents_runs_delete", agency.owner, app_id=agency.app_id, name="b", id=run["id"])
    assert await rows(agency) == {}


async def test_a_conversation_is_erased_and_another_is_not(agency: Agency) -> None:
    await agent(agency)
    await talk(agency)
    other = await talk(agency, thread="other")
    waiting = await agency.run("a", input={"say": '/call interrupt {"reason": "Go on?"}'}, thread_id="t")
    named = {"app_id": agency.app_id, "name": "a", "thread_id": "t"}
    erasing = await agency.house.use("agents_threads_delete", agency.owner, **named)
    assert erasing == {"runs": 2}
    await settled(agency.house)
    agency.house.clock.advance(5)
    await settled(agency.house)
    left = await rows(agency)
    assert (left["agent_runs"], left["agent_threads"], left["agent_messages"]) == (1, 1, 4)
    assert (await agency.read("a", other))["status"] == "completed"
    gone = {"app_id": agency.app_id, "name": "a", "id": waiting["id"]}
    assert (await agency.refused("agents_runs_get", agency.owner, **gone)).status == 404


async def test_all_that_there_is_of_a_user_or_visitor_is_erased(agency: Agency) -> None:
    await agent(agency, visibility="public", safety_acknowledged=True)
    ada, bob = agency.user("ada"), agency.user("bob")
    for who in (ada, bob):
        await talk(agency, who)
    started = await agency.house.use(
        "agents_public_run", Anonymous(agency.app_id), app_id=agency.app_id, name="a", input={"say": "/say Hi."}
    )
    await settled(agency.house)
    for user_id in ("ada", started["visitor_id"]):
        await agency.house.use("agents_users_erase", agency.owner, app_id=agency.app_id, user_id=user_id)
        await settled(agency.house)
    listed = await agency.house.use("agents_runs_list", agency.owner, app_id=agency.app_id, name="a")
    assert [run["caller_user_id"] for run in listed["runs"]] == ["bob"]
    assert (await agency.refused("agents_users_erase", bob, app_id=agency.app_id, user_id="bob")).status == 403


async def test_runs_are_kept_for_as_long_as_their_agent_or_the_installation_says(agency: Agency) -> None:
    await agent(agency, retention_days=1)
    spec = graph({"done": {"type": "end", "output_template": "ok"}})
    await agency.agent("usual", spec)
    await talk(agency)
    await agency.run("usual")
    agency.house.clock.advance(DAY_SECONDS + 60)
    await agency.tend()
    left = await rows(agency)
    assert (left["agent_runs"], "approvals" in left) == (1, False)
    # What is remembered stays until it is deleted.
    assert left["agent_messages"] == 4
    agency.house.clock.advance(89 * DAY_SECONDS)
    await agency.tend()
    assert "agent_runs" not in await rows(agency)
