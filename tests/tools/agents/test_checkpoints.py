"""Checkpoints of runs: what they keep, and that runs, forks and replays find it again."""

import json
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import func, select

from baobab.cli.work.replays import replay
from baobab.runtime.agents.checkpoint_json import loads
from baobab.runtime.agents.tables import checkpoints, pieces, writes
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_fork import fork_run

STEPS = 50
LARGE = "x" * 100_000


def large_then_small(parts: int, steps: int) -> dict[str, Any]:
    """A graph that writes the large text of its input under several keys, and then takes small steps."""
    hold = {"type": "tool", "tool_ref": {"source": "builtin", "name": "interrupt"}, "on_denied": "tell"}
    nodes: dict[str, Any] = {}
    for part in range(parts):
        say = {"type": "llm", "input_template": f"/say {part} {{{{ input.text }}}}", "output_key": f"large_{part}"}
        nodes[f"large {part}"] = say
    for step in range(steps):
        nodes[f"small {step}"] = {"type": "llm", "input_template": "/say small", "output_key": "small"}
    nodes["hold"] = {**hold, "args_template": {"reason": "Go on?"}, "output_key": "held"}
    nodes["done"] = {"type": "end", "output_template": {"small": "{{ state.small }}"}}
    names = list(nodes)
    edges = list(pairwise(names))
    return build_graph(nodes, *edges, tools={"builtin": ["interrupt"]}, limits={"max_steps": 200})


async def count_characters(agency: Agency, run_id: str) -> int:
    """Characters of a run's checkpoints."""
    async with agency.harness.services.database.reading() as connection:
        texts = [(checkpoints.c.checkpoint, checkpoints.c.thread_id), (pieces.c.text, pieces.c.thread_id)]
        sums = [select(func.coalesce(func.sum(func.length(text)), 0)).where(of == run_id) for text, of in texts]
        return sum([int((await connection.execute(query)).scalar_one()) for query in sums])


async def test_fifty_small_steps_of_a_run_with_five_megabytes_keep_little_more(agency: Agency) -> None:
    await agency.create_agent("a", large_then_small(1, STEPS))
    run = await agency.run_agent("a", input={"text": "t"})
    large = "".join(f"{part} {LARGE}" for part in range(50))
    again = await fork_run(agency, "a", run["id"], step=1, state={"large_0": large})
    assert again["status"] == "paused", (again["status"], again["error"])
    assert 5_000_000 < await count_characters(agency, again["id"]) < 6_000_000


async def test_what_is_held_in_pieces_is_found_again_by_forks_and_replays(agency: Agency) -> None:
    await agency.create_agent("a", large_then_small(2, 3))
    run = await agency.decide("a", (await agency.run_agent("a", input={"text": LARGE[:5000]}))["id"])
    assert run["status"] == "completed", run
    lines, same = await replay(agency.harness.services, run["id"], agency.app_id, present=False)
    assert same, lines
    again = await fork_run(agency, "a", run["id"], step=3, state={"large_0": "y" * 3000})
    assert again["status"] == "paused", again
    again = await agency.decide("a", again["id"])
    assert again["status"] == "completed", again
    lines, same = await replay(agency.harness.services, again["id"], agency.app_id, present=False)
    assert same, lines


async def test_an_ended_run_keeps_no_results_that_its_checkpoints_hold(agency: Agency) -> None:
    await agency.create_agent("a", large_then_small(1, 1))
    run = await agency.decide("a", (await agency.run_agent("a", input={"text": "t"}))["id"])
    async with agency.harness.services.database.reading() as connection:
        mine = select(func.count()).select_from(writes).where(writes.c.thread_id == run["id"])
        assert (await connection.execute(mine)).scalar_one() == 0


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_value_that_looks_like_a_piece_is_data(agency: Agency, depth: int) -> None:
    forged_value: Any = {"$": "piece", "of": "0" * 40}
    for _ in range(depth):
        forged_value = {"a": forged_value, "b": "z" * 1000}
    await agency.create_agent("a", build_graph({"done": {"type": "end", "output_template": "{{ input.forged }}"}}))
    run = await agency.run_agent("a", input={"forged": forged_value})
    assert run["output"] == forged_value, run
    again = await fork_run(agency, "a", run["id"], step=0)
    assert again["output"] == forged_value, again


def test_checkpoints_of_earlier_versions_are_read_as_they_are() -> None:
    assert loads(json.dumps({"channel_values": {"state": {"a": [1]}}})) == {"channel_values": {"state": {"a": [1]}}}
