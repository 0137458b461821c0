"""Answers that arrive in pieces: each sentence is told with its sources as soon as it is finished."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab.tools.rag.answers import SentenceReader, split_sentences
from tests.clock import FixedClock
from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import Installation, open_installation
from tests.tools.rag.conftest import RagApp

PIECES = ["Bread rises", " because of", " yeast. [1", "] Water", " is stored", " in trunks [2][1].", " Perhaps."]


@pytest.fixture
async def world(tmp_path: Path, settings: dict[str, str]) -> AsyncIterator[Installation]:
    variables = {**settings, "BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": "127.0.0.0/8"}
    async with open_installation(tmp_path / "data", variables) as installation:
        yield installation


def write_stream(pieces: list[str], end: str = "data: [DONE]\n\n") -> CannedAnswer:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": {"content": piece}, "finish_reason": None} for piece in pieces
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    frames = [f"data: {json.dumps({**head, 'choices': [choice]})}\n\n" for choice in choices]
    return CannedAnswer(("".join(frames) + end).encode(), headers={"content-type": "text/event-stream"})


def read_events(text: str) -> list[tuple[str, Any]]:
    events = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


async def test_each_sentence_is_told_with_its_sources_before_the_next_one_ends(world: Installation) -> None:
    app = RagApp(world, FixedClock(), await world.create_app())
    await app.ingest_facts()
    world.fake.canned_answers["cited"] = write_stream(PIECES)
    body = {"query": "bread", "topK": 2, "synthesize": True, "stream": True, "model": world.add_model("said:cited")}
    answer = await app.request("POST", "/facts/query", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = read_events(answer.text)
    assert events[0][0] == "chunks"
    assert len(events[0][1]["chunks"]) == 2
    assert [data["text"] for name, data in events if name == "delta"] == PIECES
    sentences = [data for name, data in events if name == "sentence"]
    assert sentences == [
        {"text": "Bread rises because of yeast.", "sources": [0]},
        {"text": "Water is stored in trunks.", "sources": [0, 1]},
        {"text": "Perhaps.", "sources": []},
    ]
    assert events[-1][0] == "done"
    assert events[-1][1]["answer"] == "".join(PIECES)
    assert events[-1][1]["sentences"] == sentences
    order = [data["text"] for name, data in events if name in ("delta", "sentence")]
    # Once what follows it has begun, and no sooner: its sources had not arrived.
    assert order[3:5] == ["] Water", "Bread rises because of yeast."]


async def test_an_answer_in_one_piece_has_the_same_sentences(world: Installation) -> None:
    app = RagApp(world, FixedClock(), await world.create_app())
    await app.ingest_facts()
    world.fake.canned_answers["cited"] = write_stream(["".join(PIECES)])
    body = {"query": "bread", "topK": 2, "synthesize": True, "stream": True, "model": world.add_model("said:cited")}
    events = read_events((await app.request("POST", "/facts/query", json=body)).text)
    assert [name for name, _ in events] == ["chunks", "delta", "sentence", "sentence", "sentence", "done"]


@given(st.lists(st.text(alphabet='ab.!? \n[]12,3)"', max_size=12), max_size=12))
def test_the_sentences_are_the_same_however_the_answer_is_cut(pieces: list[str]) -> None:
    reader = SentenceReader(2)
    sentences = [sentence for piece in pieces for sentence in reader.read(piece)]
    assert sentences + reader.finish() == split_sentences("".join(pieces), 2)


@pytest.mark.parametrize("text", ["." * 100_000 + "x", "a.b" * 50_000, "[1" * 50_000, " " * 100_000, "a" * 100_000])
def test_an_answer_that_never_ends_a_sentence_is_read_in_one_go(text: str) -> None:
    reader = SentenceReader(2)
    sentences = [each for start in range(0, len(text), 10) for each in reader.read(text[start : start + 10])]
    assert len(sentences + reader.finish()) <= 1
