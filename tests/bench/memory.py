"""The substrate's memory: proposing, searching a hundred thousand memories, undoing a thousand actions, and recall.

Beside it Mem0 and Graphiti with the same embedder, which they ask over HTTP, each in an environment of its own.
"""

import asyncio
import secrets
import statistics
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
from tests.bench import recall
from tests.tools.conftest import ToolHarness

MEMORIES = 100_000
_PROPOSALS, _SEARCHES, _UNDONE = 200, 50, 1000
_AT_ONCE = 2000
_WAYS = {
    "words": ("words", "and"),
    "words, any of eight": ("words", "or"),
    "meaning": ("meaning", "and"),
    "both": ("both", "and"),
    "both, any of eight": ("both", "or"),
}
_AGAIN = "meaning, a question that came before"
_EMBED = "make the vector of a question"
# Words of made-up texts: the first are much more frequent than the last, as in real ones.
_WORDS = [f"word{number}" for number in range(20_000)]


def run() -> dict[str, Any]:
    figures = asyncio.run(_measure())
    for question_set in recall.load_sets():
        figures[question_set.name] |= recall.measure_peers(question_set)
    return figures


async def _measure() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for question_set in recall.load_sets():
        async with _open_harness() as (harness, owner):
            figures[question_set.name] = {"Baobab": await recall.measure_ours(harness, owner, question_set)}
    async with _open_harness() as (harness, owner):
        propose = _make_proposals(harness, owner)
        await _time(propose, 20)
        figures["propose"] = await _time(propose, _PROPOSALS)
        figures["undo"] = await _measure_undo(harness, owner)
        await _fill(harness, owner)
        for name, (way, match) in _WAYS.items():
            search = _make_searches(harness, owner, way, match)
            await _time(search, 3)
            figures[name] = await _time(search, _SEARCHES)
        again = _make_searches(harness, owner, "meaning", "and", is_repeated=True)
        await _time(again, 3)
        figures[_AGAIN] = await _time(again, _SEARCHES)
        figures[_EMBED] = await _time(_embed_question, _SEARCHES)
    return figures


@asynccontextmanager
async def _open_harness() -> AsyncIterator[tuple[ToolHarness, Account]]:
    clock: Any = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings({"BAOBAB_PLAN": "enterprise"}, data=Path(folder))
        async with composition.open_application(settings, clock=clock) as application:
            harness = ToolHarness(application.services, application.registry, clock, Path(folder))
            yield harness, await harness.sign_up("ada@example.com")


class Cost(NamedTuple):
    """Milliseconds of a call, by the clock, and of the processor, whatever else the machine does."""

    wall: float
    cpu: float


async def _time(call: Callable[[int], Awaitable[Any]], times: int) -> Cost:
    """The medians of so many calls one after the other."""
    seconds = []
    for number in range(times):
        began, cpu_began = time.perf_counter(), time.process_time()
        await call(number)
        seconds.append((time.perf_counter() - began, time.process_time() - cpu_began))
    return Cost(*(statistics.median(each) * 1000 for each in zip(*seconds, strict=True)))


def _make_proposals(harness: ToolHarness, owner: Account) -> Callable[[int], Awaitable[Any]]:
    async def propose(number: int) -> Any:
        payload = {"title": f"Decision {number}", "kind": "operational", "rationale": _build_text(number)}
        return await harness.call("substrate_propose", owner, capability="record_decision", payload=payload)

    return propose


def _make_searches(
    harness: ToolHarness, owner: Account, way: str, match: str, *, is_repeated: bool = False
) -> Callable[[int], Awaitable[Any]]:
    # Each way asks other questions: the vectors of those that another has asked are remembered.
    first = list(_WAYS.values()).index((way, match)) * _SEARCHES

    async def search(number: int) -> Any:
        row = 7 if is_repeated else ((first + number) * 997) % MEMORIES
        words = _build_text(row).split()
        # With "or", as in a question: most of its words are everyday ones.
        q = " ".join(words[3:6] + (_WORDS[1:6] if match == "or" else []))
        return await harness.call("substrate_search_memory", owner, q=q, search_by=way, match=match)

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

    proposal = await propose("upsert_entity", type="person", display_name="Ada")
    for number in range(_UNDONE - 1):
        await propose("patch_entity", id=proposal["result"]["entity_id"], attrs_patch={"n": number})
    began, cpu_began = time.perf_counter(), time.process_time()
    undone_proposal = await propose("revert_action", action_id=proposal["action_id"], cascade=True)
    cost = Cost((time.perf_counter() - began) * 1000, (time.process_time() - cpu_began) * 1000)
    assert len(undone_proposal["result"]["reverted"]) == _UNDONE
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
        memory_rows = (await unit.execute(select(memory.id, memory.number, memory.kind, memory.updated_at))).all()
        for start in range(0, len(memory_rows), _AT_ONCE):
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
                for row in memory_rows[start : start + _AT_ONCE]
            ]
            await unit.execute(insert(tables.embeddings).prefix_with("OR REPLACE"), vectors)
        last = max(row.updated_at for row in memory_rows)
        state = {"organisation_id": organisation_id, "embedder": name_embedder(), "embedded_until": last}
        await unit.execute(insert(tables.embedding_states).prefix_with("OR REPLACE"), state)
        await unit.execute(update(tables.settings).values(last_at=last))


def _build_text(number: int) -> str:
    """Twenty words, of which some are frequent."""
    return " ".join(
        _WORDS[(number * 7919 + place * place * 104_729) % (10 ** (2 + place % 3) * 2)] for place in range(20)
    )


def report(figures: dict[str, Any]) -> Iterator[str]:
    yield f"\nThe memory of a substrate, on files, {MEMORIES} memories; medians, one call after the other"
    yield f"{'':50}{'ms':>9}{'CPU ms':>9}"
    names = {"propose": "propose a decision, with ledger and receipt", "undo": f"undo {_UNDONE} actions at once"}
    names |= {way: f"search by {way}" for way in (*_WAYS, _AGAIN)}
    names |= {_EMBED: _EMBED}
    for way, name in names.items():
        yield f"  {name:48}{figures[way].wall:9.2f}{figures[way].cpu:9.2f}"
    yield "The peers are without the time of a language model, and ask the same embedder over HTTP"
    for question_set in recall.load_sets():
        yield from recall.report(question_set, figures[question_set.name])
