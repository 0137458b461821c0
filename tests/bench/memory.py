"""The substrate's memory: proposing, searching a hundred thousand memories, undoing a thousand actions, and recall.

Beside it Mem0 and Graphiti with the same embedder, which they ask over HTTP, each in an environment of its own.
"""

import asyncio
import json
import os
import secrets
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import insert, select, update

from baobab import composition
from baobab.settings import load_settings
from baobab.storage.clock import SystemClock
from baobab.tools.core.auth.callers import Account
from baobab.tools.substrate import proposals, tables
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.ledger import open_ledger
from baobab.tools.substrate.meaning.vectors import embed_texts, name_embedder
from baobab.tools.substrate.search_index import index_rows
from tests.bench.peers.environments import GRAPHITI, MEM0, Peer, install_peer
from tests.cli.server_process import run_server
from tests.jobs import run_job
from tests.tools.conftest import ToolHarness

MEMORIES = 100_000
_PROPOSALS, _SEARCHES, _UNDONE = 200, 50, 1000
_QUESTIONS = Path(__file__).with_name("memory_questions.json")
_PEERS = ((MEM0, "mem0_memory.py"), (GRAPHITI, "graphiti_memory.py"))
_PEER_SECONDS = 900
_KEY = "bb_sk_" + "M" * 40
_AT_ONCE = 2000
_AGAIN = "meaning, a question that came before"
_EMBED = "make the vector of a question"
_FIRST = 5
"""Recall is how often the right memory is among the first so many."""
# Words of made-up texts: the first are much more frequent than the last, as in real ones.
_WORDS = [f"word{number}" for number in range(20_000)]


def run() -> dict[str, Any]:
    return asyncio.run(_measure()) | {"peers": {peer.name: _run_peer(peer, script) for peer, script in _PEERS}}


async def _measure() -> dict[str, Any]:
    measured: dict[str, Any] = {}
    async with _open_harness() as (harness, owner):
        measured["recall"] = await _measure_recall(harness, owner)
    async with _open_harness() as (harness, owner):
        propose = _make_proposals(harness, owner)
        await _time(propose, 20)
        measured["propose"] = await _time(propose, _PROPOSALS)
        measured["undo"] = await _measure_undo(harness, owner)
        await _fill(harness, owner)
        for way in ("words", "meaning", "both"):
            search = _make_searches(harness, owner, way)
            await _time(search, 3)
            measured[way] = await _time(search, _SEARCHES)
        again = _make_searches(harness, owner, "meaning", repeated=True)
        await _time(again, 3)
        measured[_AGAIN] = await _time(again, _SEARCHES)
        measured[_EMBED] = await _time(_embed_question, _SEARCHES)
    return measured


@asynccontextmanager
async def _open_harness() -> AsyncIterator[tuple[ToolHarness, Account]]:
    clock: Any = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings({"BAOBAB_PLAN": "enterprise"}, data=Path(folder))
        async with composition.open_application(settings, clock=clock) as opened:
            harness = ToolHarness(opened.services, opened.registry, clock, Path(folder))
            yield harness, await harness.sign_up("ada@example.com")


class Cost(NamedTuple):
    """Milliseconds of a call, by the clock, and of the processor, whatever else the machine does."""

    wall: float
    cpu: float


async def _time(call: Callable[[int], Awaitable[Any]], times: int) -> Cost:
    """The medians of so many calls one after the other."""
    taken = []
    for number in range(times):
        began, worked = time.perf_counter(), time.process_time()
        await call(number)
        taken.append((time.perf_counter() - began, time.process_time() - worked))
    return Cost(*(statistics.median(each) * 1000 for each in zip(*taken, strict=True)))


def _make_proposals(harness: ToolHarness, owner: Account) -> Callable[[int], Awaitable[Any]]:
    async def propose(number: int) -> Any:
        payload = {"title": f"Decision {number}", "kind": "operational", "rationale": _build_text(number)}
        return await harness.call("substrate_propose", owner, capability="record_decision", payload=payload)

    return propose


def _make_searches(
    harness: ToolHarness, owner: Account, way: str, *, repeated: bool = False
) -> Callable[[int], Awaitable[Any]]:
    async def search(number: int) -> Any:
        row = 7 if repeated else (number * 997) % MEMORIES
        words = _build_text(row).split()
        q = " ".join(words[3:6])
        return await harness.call("substrate_search_memory", owner, q=q, search_by=way)

    return search


async def _embed_question(number: int) -> Any:
    return await embed_texts([" ".join(_build_text(number * 991).split()[3:6])])


async def _measure_undo(harness: ToolHarness, owner: Account) -> Cost:
    """What undoing an action costs on which the others all build: one transaction."""

    services, organisation_id = harness.services, owner.organisation_id

    async def propose(capability: str, **payload: Any) -> Any:
        # Past the registry, whose limit of calls a minute is lower.
        async with services.database.writing_unit(lock=organisation_id) as unit:
            proposer = Proposer("human", "bench")
            return await proposals.propose(unit, services, organisation_id, proposer, capability, payload)

    made = await propose("upsert_entity", type="person", display_name="Ada")
    for number in range(_UNDONE - 1):
        await propose("patch_entity", id=made["result"]["entity_id"], attrs_patch={"n": number})
    began, worked = time.perf_counter(), time.process_time()
    undone = await propose("revert_action", action_id=made["action_id"], cascade=True)
    cost = Cost((time.perf_counter() - began) * 1000, (time.process_time() - worked) * 1000)
    assert len(undone["result"]["reverted"]) == _UNDONE
    return cost


async def _fill(harness: ToolHarness, owner: Account) -> None:
    """Memories of made-up texts, with vectors at random: what a search costs does not depend on what they mean."""
    services, organisation_id = harness.services, owner.organisation_id
    for start in range(0, MEMORIES, _AT_ONCE):
        async with (
            services.database.writing_unit(lock=organisation_id, bulk=True) as unit,
            open_ledger(unit, services, organisation_id) as ledger,
        ):
            rows: list[dict[str, Any]] = []
            for number in range(start, start + _AT_ONCE):
                at = ledger.stamp()
                row: dict[str, Any] = {
                    "id": ledger.new_id("lrn"),
                    "title": f"Learning {number}",
                    "from_strangers": False,
                }
                row |= {"description": _build_text(number), "action_id": "", "created_at": at, "updated_at": at}
                rows.append({**row, "organisation_id": organisation_id, "resolution_taken": None})
            await unit.execute(insert(tables.learnings), rows)
            await index_rows(unit, organisation_id, tables.learnings, rows, [])
            ledger.tell(tables.learnings, "insert", rows[-1]["id"])
    memory = tables.memory.c
    async with services.database.writing_unit(lock=organisation_id, bulk=True) as unit:
        found = (await unit.execute(select(memory.id, memory.number, memory.kind, memory.updated_at))).all()
        for start in range(0, len(found), _AT_ONCE):
            vectors = [
                {
                    "organisation_id": organisation_id,
                    "id": row.id,
                    "number": row.number,
                    "kind": row.kind,
                    "memory_at": row.updated_at,
                    "parts": secrets.token_bytes(384),
                    "bits": secrets.token_bytes(48),
                }
                for row in found[start : start + _AT_ONCE]
            ]
            await unit.execute(insert(tables.embeddings).prefix_with("OR REPLACE"), vectors)
        last = max(row.updated_at for row in found)
        state = {"organisation_id": organisation_id, "embedder": name_embedder(), "embedded_until": last}
        await unit.execute(insert(tables.embedding_states).prefix_with("OR REPLACE"), state)
        await unit.execute(update(tables.settings).values(last_at=last))


def _build_text(number: int) -> str:
    """Twenty words, of which some are frequent."""
    return " ".join(
        _WORDS[(number * 7919 + place * place * 104_729) % (10 ** (2 + place % 3) * 2)] for place in range(20)
    )


async def _measure_recall(harness: ToolHarness, owner: Account) -> dict[str, float]:
    """How often the memory that answers is among the first, and how long adding one and asking takes."""
    told = json.loads(_QUESTIONS.read_text())

    async def remember(number: int) -> Any:
        text = told["memories"][number]
        payload = {"title": text, "description": text}
        return await harness.call("substrate_propose", owner, capability="record_learning", payload=payload)

    began = time.perf_counter()
    for number in range(len(told["memories"])):
        await remember(number)
    await run_job(harness, "substrate_embed")
    measured = {"add with its vector, ms": (time.perf_counter() - began) * 1000 / len(told["memories"])}
    for way, match in (("words", "and"), ("words", "or"), ("meaning", "and"), ("both", "and"), ("both", "or")):
        hits, taken = 0, []
        for question, answer in told["questions"]:
            asked = {"q": question, "search_by": way, "match": match, "limit": _FIRST}
            began = time.perf_counter()
            found = await harness.call("substrate_search_memory", owner, **asked)
            taken.append(time.perf_counter() - began)
            hits += told["memories"][answer] in [row["title"] for row in found["results"]]
        measured[f"{way}, {match}"] = hits / len(told["questions"])
        if way == "meaning":
            measured["search by meaning, ms"] = statistics.median(taken) * 1000
    return measured


def _run_peer(peer: Peer, script: str) -> dict[str, float] | None:
    """A peer with the same texts; None where it cannot be installed."""
    try:
        python = install_peer(peer)
    except subprocess.CalledProcessError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        settings = {"BAOBAB_BOOTSTRAP_KEY": _KEY, "BAOBAB_PLAN": "enterprise"}
        with run_server(Path(folder) / "data", settings=settings) as server:
            path = Path(__file__).parent / "peers" / script
            command = [str(python), str(path), server.address, _KEY, str(_QUESTIONS), str(_FIRST), folder]
            silent = {"MEM0_TELEMETRY": "False", "GRAPHITI_TELEMETRY_ENABLED": "false", "HOME": folder}
            environment = {**os.environ, **silent}
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment, timeout=_PEER_SECONDS
            )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(measured: dict[str, Any]) -> Iterator[str]:
    yield f"\nThe memory of a substrate, on files, {MEMORIES} memories; medians, one call after the other"
    yield f"{'':50}{'ms':>9}{'CPU ms':>9}"
    names = {"propose": "propose a decision, with ledger and receipt", "undo": f"undo {_UNDONE} actions at once"}
    names |= {way: f"search by {way}" for way in ("words", "meaning", "both", _AGAIN)}
    names |= {_EMBED: _EMBED}
    for way, name in names.items():
        yield f"  {name:48}{measured[way].wall:9.2f}{measured[way].cpu:9.2f}"
    recall = measured["recall"]
    yield f"Recall of the right memory among the first {_FIRST}, of 40 questions in other words"
    for name, value in recall.items():
        yield f"  {name:46}{value:8.2f}"
    for peer, _ in _PEERS:
        yield f"{peer.name} {peer.version}, without the time of a language model, the same embedder over HTTP"
        found = measured["peers"][peer.name]
        if found is None:
            yield "  it could not be installed"
            continue
        for name, value in found.items():
            yield f"  {name:46}{value:8.2f}"
