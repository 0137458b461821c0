"""Runs and conversations are erased: after their time, and when somebody asks for it."""

from typing import Any

from sqlalchemy import Engine, Table, event, func, select

from baobab.runtime.agents.tables import checkpoints, events, messages, pieces, runs, threads, writes
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.auth.callers import Anonymous, Caller
from tests.jobs import run_due_jobs
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_models_and_tools import model_graph

KEPT = (runs, events, checkpoints, pieces, writes, messages, threads, approvals)
DAY_SECONDS = 86_400


async def count_rows(agency: Agency) -> dict[str, int]:
    """How many rows there are of what runs leave, by table; without those that have none."""

    async def count(table: Table) -> int:
        async with agency.harness.services.database.reading() as connection:
            return int((await connection.execute(select(func.count()).select_from(table))).scalar_one())

    row_counts = {table.name: await count(table) for table in KEPT}
    return {name: number for name, number in row_counts.items() if number}


async def run_conversation(agency: Agency, by: Caller | None = None, thread: str = "t") -> str:
    """A run that has asked a person, was told to go on, and is remembered."""
    text = {"say": '/call interrupt {"reason": "Go on?"}\n/say ' + "Said. " * 200}
    run = await agency.run_agent("a", by, input=text, thread_id=thread)
    run = await agency.decide("a", run["id"])
    assert run["status"] == "completed", run
    run_id: str = run["id"]
    return run_id


async def create_agent(agency: Agency, **settings: Any) -> None:
    await agency.create_agent("a", model_graph("{{ input.say }}", "interrupt", remembers=True), **settings)


async def test_a_run_is_erased_with_all_that_was_kept_of_it(agency: Agency) -> None:
    await create_agent(agency)
    run_id = await run_conversation(agency)
    assert {"agent_runs", "agent_events", "agent_checkpoints", "agent_messages", "approvals"} < set(
        await count_rows(agency)
    )
    arguments = {"app_id": agency.app_id, "name": "a", "id": run_id}
    await agency.harness.call("agents_runs_delete", agency.owner, **arguments)
    assert await count_rows(agency) == {"agent_threads": 1}
    assert (await agency.catch_refusal("agents_runs_get", agency.owner, **arguments)).status == 404


async def test_a_run_under_way_is_not_erased(agency: Agency) -> None:
    await create_agent(agency)
    run = await agency.run_agent("a", input={"say": '/call interrupt {"reason": "Go on?"}'})
    arguments = {"app_id": agency.app_id, "name": "a", "id": run["id"]}
    refusal = await agency.catch_refusal("agents_runs_delete", agency.owner, **arguments)
    assert (refusal.status, refusal.code, refusal.details) == (409, "run_under_way", {"status": "paused"})
    assert (await agency.decide("a", run["id"]))["status"] == "completed"


async def test_runs_below_are_erased_with_the_run_above_and_not_before_it_has_ended(agency: Agency) -> None:
    await create_agent(agency)
    below = {"type": "agent", "agent": "a", "input_template": {"say": "/say Hello."}, "output_key": "told"}
    hold = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "interrupt"},
        "args_template": {"reason": "Go on?"},
    }
    nodes = {"below": below, "hold": hold, "done": {"type": "end"}}
    await agency.create_agent(
        "b", build_graph(nodes, ("below", "hold"), ("hold", "done"), tools={"builtin": ["interrupt"]})
    )
    run = await agency.run_agent("b")
    while run["status"] != "paused":
        run = await agency.wait_for_run("b", run["id"])
    result = await agency.harness.call("agents_runs_list", agency.owner, app_id=agency.app_id, name="a")
    (child,) = result["runs"]
    refusal = await agency.catch_refusal(
        "agents_runs_delete", agency.owner, app_id=agency.app_id, name="a", id=child["id"]
    )
    assert refusal.code == "run_under_way"
    await agency.decide("b", run["id"])
    await agency.harness.call("agents_runs_delete", agency.owner, app_id=agency.app_id, name="b", id=run["id"])
    assert await count_rows(agency) == {}


async def test_a_conversation_is_erased_and_another_is_not(agency: Agency) -> None:
    await create_agent(agency)
    await run_conversation(agency)
    other = await run_conversation(agency, thread="other")
    waiting = await agency.run_agent("a", input={"say": '/call interrupt {"reason": "Go on?"}'}, thread_id="t")
    arguments = {"app_id": agency.app_id, "name": "a", "thread_id": "t"}
    erasing = await agency.harness.call("agents_threads_delete", agency.owner, **arguments)
    assert erasing == {"runs": 2}
    await run_due_jobs(agency.harness)
    agency.harness.clock.advance(5)
    await run_due_jobs(agency.harness)
    row_count = await count_rows(agency)
    assert (row_count["agent_runs"], row_count["agent_threads"], row_count["agent_messages"]) == (1, 1, 4)
    assert (await agency.get_run("a", other))["status"] == "completed"
    gone_arguments = {"app_id": agency.app_id, "name": "a", "id": waiting["id"]}
    assert (await agency.catch_refusal("agents_runs_get", agency.owner, **gone_arguments)).status == 404


async def test_all_that_there_is_of_a_user_or_visitor_is_erased(agency: Agency) -> None:
    await create_agent(agency, visibility="public", safety_acknowledged=True)
    ada, bob = agency.end_user("ada"), agency.end_user("bob")
    for who in (ada, bob):
        await run_conversation(agency, who)
    result = await agency.harness.call(
        "agents_public_run", Anonymous(agency.app_id), app_id=agency.app_id, name="a", input={"say": "/say Hi."}
    )
    await run_due_jobs(agency.harness)
    for user_id in ("ada", result["visitor_id"]):
        await agency.harness.call("agents_users_erase", agency.owner, app_id=agency.app_id, user_id=user_id)
        await run_due_jobs(agency.harness)
    listed_result = await agency.harness.call("agents_runs_list", agency.owner, app_id=agency.app_id, name="a")
    assert [run["caller_user_id"] for run in listed_result["runs"]] == ["bob"]
    assert (await agency.catch_refusal("agents_users_erase", bob, app_id=agency.app_id, user_id="bob")).status == 403


async def test_runs_are_kept_for_as_long_as_their_agent_or_the_installation_says(agency: Agency) -> None:
    await create_agent(agency, retention_days=1)
    spec = build_graph({"done": {"type": "end", "output_template": "ok"}})
    await agency.create_agent("usual", spec)
    await run_conversation(agency)
    await agency.run_agent("usual")
    agency.harness.clock.advance(DAY_SECONDS + 60)
    await agency.run_maintenance()
    row_count = await count_rows(agency)
    assert (row_count["agent_runs"], "approvals" in row_count) == (1, False)
    # What is remembered stays until it is deleted.
    assert row_count["agent_messages"] == 4
    agency.harness.clock.advance(89 * DAY_SECONDS)
    await agency.run_maintenance()
    assert "agent_runs" not in await count_rows(agency)


async def test_the_search_for_runs_past_their_retention_does_not_read_the_runs_that_are_kept(agency: Agency) -> None:
    await create_agent(agency, retention_days=1)
    run_id = await run_conversation(agency)
    await agency.create_agent("usual", build_graph({"done": {"type": "end"}}))
    kept_run = await agency.run_agent("usual")
    agency.harness.clock.advance(DAY_SECONDS + 60)
    plans: list[str] = []

    def explain(connection: Any, _cursor: Any, statement: str, parameters: Any, *_options: Any) -> None:
        if "agent_runs.finished_at <=" not in statement or statement.startswith("EXPLAIN"):
            return
        command = "EXPLAIN"
        if connection.dialect.name == "sqlite":
            command = "EXPLAIN QUERY PLAN"
        else:
            # With few rows it would read the whole table in any case.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        plan = connection.exec_driver_sql(f"{command} {statement}", parameters).all()
        plans.append("\n".join(str(row[-1]) for row in plan))

    event.listen(Engine, "after_cursor_execute", explain)
    try:
        await agency.run_maintenance()
    finally:
        event.remove(Engine, "after_cursor_execute", explain)
    # At least one for agents with a setting of their own, and one for those with the installation's.
    assert len(plans) >= 2
    for plan in plans:
        assert "ix_agent_runs_finished_at" in plan, plan
        assert "SCAN agent" not in plan, plan
        assert "ix_agent_runs_agent_id" not in plan, plan
        assert "ORDER BY" not in plan, plan
    arguments = {"app_id": agency.app_id, "name": "a", "id": run_id}
    assert (await agency.catch_refusal("agents_runs_get", agency.owner, **arguments)).status == 404
    assert (await agency.get_run("usual", kept_run["id"]))["status"] == "completed"
