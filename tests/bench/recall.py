"""How often the memories that answer a question are found: by us, and by peers with the same texts and embedder."""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from baobab.tools.core.auth.callers import Account
from baobab.tools.substrate import proposals
from baobab.tools.substrate.access import Proposer
from tests.bench.peers.environments import GRAPHITI, MEM0, Peer, install_peer
from tests.cli.server_process import run_server
from tests.jobs import run_job
from tests.tools.conftest import ToolHarness

_HERE = Path(__file__).parent
_PEERS = ((MEM0, "mem0_memory.py"), (GRAPHITI, "graphiti_memory.py"))
_PEER_SECONDS = 900
_KEY = "bb_sk_" + "M" * 40
_WAYS = (("words", "and"), ("words", "or"), ("meaning", "and"), ("both", "and"), ("both", "or"))
_FIRST = (5, 10)
"""Recall is the part of the right memories that is among the first so many."""
_ALL, _NEVER = "all", "never said"


@dataclass(frozen=True, slots=True)
class Question:
    """answers: the places of the memories that answer it; none of what was never said."""

    text: str
    kind: str
    answers: Sequence[int]


@dataclass(frozen=True, slots=True)
class Told:
    """What is remembered, each with a title that says who told it when, or none; and what is asked."""

    name: str
    memories: Sequence[tuple[str, str]]
    questions: Sequence[Question]

    def list_texts(self) -> list[str]:
        return [f"{title}: {text}" if title else text for title, text in self.memories]


@dataclass(frozen=True, slots=True)
class Found:
    """What a way of searching found: for each question the places of memories, the best first.

    closest: how close the first is to each question; None where the way does not say it. search: milliseconds, the
    median.
    """

    places: Sequence[Sequence[int]]
    closest: Sequence[float] | None
    search: float


@dataclass(frozen=True, slots=True)
class Measured:
    """add: milliseconds for each memory, its vector included. calls: of a model for each memory."""

    add: float
    ways: dict[str, Found]
    calls: float = 0


def load_sets() -> list[Told]:
    short = json.loads((_HERE / "memory_questions.json").read_text())
    short_questions = [Question(question, _ALL, [answer]) for question, answer in short["questions"]]
    turns, questions = (_read_lines(f"{name}.jsonl") for name in ("turns", "questions"))
    places = {turn["id"]: place for place, turn in enumerate(turns)}
    titled_turns = [(f"{turn['speaker']}, {date.fromisoformat(turn['date']):%d %B %Y}", turn["text"]) for turn in turns]
    about = [Question(row["question"], row["kind"], [places[turn] for turn in row["turns"]]) for row in questions]
    return [
        Told("40 short texts", [("", text) for text in short["memories"]], short_questions),
        Told("six long conversations", titled_turns, about),
    ]


def _read_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_HERE / "conversations" / name).read_text().splitlines()]


async def measure_ours(harness: ToolHarness, owner: Account, question_set: Told) -> Measured:
    began = time.perf_counter()
    places = {await _remember(harness, owner, *memory): place for place, memory in enumerate(question_set.memories)}
    await run_job(harness, "substrate_embed")
    add = (time.perf_counter() - began) * 1000 / len(question_set.memories)
    return Measured(
        add, {f"{way}, {match}": await ask(harness, owner, question_set, places, way, match) for way, match in _WAYS}
    )


async def _remember(harness: ToolHarness, owner: Account, title: str, text: str) -> str:
    services, organisation_id = harness.services, owner.organisation_id
    payload = {"title": title or text, "description": text}
    # Past the registry, whose limit of calls a minute is lower.
    async with services.database.writing_unit(lock=organisation_id) as unit:
        proposer = Proposer("human", "bench")
        proposal = await proposals.propose(unit, services, organisation_id, proposer, "record_learning", payload)
    result: Any = proposal["result"]
    return str(result["learning_id"])


async def ask(
    harness: ToolHarness, owner: Account, question_set: Told, places: dict[str, int], way: str, match: str
) -> Found:
    found_places, closest, seconds = [], [], []
    for question in question_set.questions:
        query: dict[str, Any] = {"q": question.text, "search_by": way, "match": match, "limit": max(_FIRST)}
        began = time.perf_counter()
        results = (await harness.call("substrate_search_memory", owner, **query))["results"]
        seconds.append(time.perf_counter() - began)
        found_places.append([places[row["id"]] for row in results])
        closest.append(results[0]["rank"] if results else 0.0)
    return Found(found_places, closest if way == "meaning" else None, statistics.median(seconds) * 1000)


def measure_peers(question_set: Told) -> dict[str, Measured | None]:
    return {f"{peer.name} {peer.version}": _run_peer(peer, script, question_set) for peer, script in _PEERS}


def _run_peer(peer: Peer, script: str, question_set: Told) -> Measured | None:
    """A peer with the same texts; None where it cannot be installed."""
    try:
        python = install_peer(peer)
    except subprocess.CalledProcessError:
        return None
    texts = question_set.list_texts()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"BAOBAB_BOOTSTRAP_KEY": _KEY, "BAOBAB_PLAN": "enterprise"}
        questions_file = Path(folder) / "told.json"
        questions_file.write_text(
            json.dumps({"memories": texts, "questions": [question.text for question in question_set.questions]})
        )
        with run_server(Path(folder) / "data", settings=settings) as server:
            path = _HERE / "peers" / script
            command = [str(python), str(path), server.address, _KEY, str(questions_file), str(max(_FIRST)), folder]
            silent = {"MEM0_TELEMETRY": "False", "GRAPHITI_TELEMETRY_ENABLED": "false", "HOME": folder}
            environment = {**os.environ, **silent}
            process = subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment, timeout=_PEER_SECONDS
            )
    payload = json.loads(process.stdout.splitlines()[-1])
    places = {text: place for place, text in enumerate(texts)}
    ways = {
        way: Found([[places[text] for text in row] for row in entry["texts"]], entry["closest"], entry["search"])
        for way, entry in payload["ways"].items()
    }
    return Measured(payload["add"], ways, payload["calls"])


def compute_recall(question_set: Told, results: Found, first: int, kind: str) -> float:
    """The part of the right memories that is among the first so many, on average over the questions of a kind."""
    parts = [
        len(set(question.answers).intersection(places[:first])) / len(question.answers)
        for question, places in zip(question_set.questions, results.places, strict=True)
        if question.answers and kind in (_ALL, question.kind)
    ]
    return statistics.mean(parts)


def _tell_apart(question_set: Told, results: Found) -> float | None:
    """How often a question that can be answered is closer to its first memory than one about what was never said."""
    if results.closest is None:
        return None
    pairs = list(zip(question_set.questions, results.closest, strict=True))
    answerable = [close for question, close in pairs if question.answers]
    never = [close for question, close in pairs if not question.answers]
    wins = [(one > other) + (one == other) / 2 for one in answerable for other in never]
    return statistics.mean(wins) if wins else None


def report(question_set: Told, figures: dict[str, Measured | None]) -> Iterator[str]:
    kinds = list(
        dict.fromkeys([_ALL, *(question.kind for question in question_set.questions if question.kind != _NEVER)])
    )
    columns = [(kind, first) for kind in kinds for first in _FIRST]
    count = len(question_set.memories)
    yield f"Recall among the first {_FIRST[0]} and {_FIRST[1]}, {question_set.name}: {count} memories"
    yield f"{'':44}" + "".join(f"{f'{kind} @{first}':>15}" for kind, first in columns) + f"{'apart':>7}{'ms':>7}"
    for name, one in figures.items():
        if one is None:
            yield f"  {name} could not be installed"
            continue
        yield f"  {name}: {one.add:.1f} ms and {one.calls:.1f} calls of a model to add a memory"
        for way, results in one.ways.items():
            shares = "".join(f"{compute_recall(question_set, results, first, kind):15.2f}" for kind, first in columns)
            apart = _tell_apart(question_set, results)
            yield f"    {way:40}{shares}{'' if apart is None else f'{apart:.2f}':>7}{results.search:7.1f}"
