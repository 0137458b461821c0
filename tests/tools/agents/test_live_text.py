"""The text of a model's answer is told while it arrives."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import func, select

from baobab.runtime.agents.live_text import MAX_CHARACTERS, LiveText, LiveTexts
from baobab.runtime.agents.tables import live_texts
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.providers import build_own_server
from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.context import RequestContext
from tests.runtime.gateway.upstream import CannedAnswer, Upstream, start_upstream
from tests.tools.agents.conftest import TIMEOUT_SECONDS, Agency, build_graph

HELLO = "Hello from the upstream, Grüße!"
DELTA = "llm_delta"


@dataclass
class Writer:
    """An agent whose model behaves as its name says, and readers of its runs."""

    agency: Agency
    fake: Upstream

    def add_model(self, behaviour: str) -> str:
        model = Model(
            id=f"lab/{behaviour}",
            name=behaviour,
            modality="chat",
            price=Price(0, 0),
            context_window=8192,
            max_output=1024,
            litellm=f"lab/{behaviour}",
            provider="lab",
            features=frozenset(("streaming", "tools")),
        )
        gateway = self.agency.harness.services.part(Gateway)
        gateway.add_provider(build_own_server("lab", f"{self.fake.url}/v1", "key"), [model])
        return model.id

    async def create_agent(self, name: str, behaviour: str, output: str = "{{ state.answer }}", **more: Any) -> None:
        think = {"type": "llm", "model": self.add_model(behaviour), "input_template": "Hello!", "output_key": "answer"}
        end = {"type": "end", "output_template": output}
        await self.agency.create_agent(name, build_graph({"think": think, "done": end}, ("think", "done")), **more)

    async def follow(self, name: str, run_id: str, by: Caller | None = None) -> list[dict[str, Any]]:
        """Everything that a reader is told until the run ends."""
        registry = self.agency.harness.registry
        context = RequestContext("test", run_id, streams=True)
        arguments = {"app_id": self.agency.app_id, "name": name, "id": run_id}
        stream: Any = await registry.call("agents_runs_events", arguments, by or self.agency.owner, context)
        text = b""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for piece in stream.pieces:
                text += piece
        return parse_frames(text.decode())


def parse_frames(text: str) -> list[dict[str, Any]]:
    frames = []
    for frame in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if "event" in lines:
            frames.append({"type": lines["event"], "id": lines.get("id"), "payload": json.loads(lines["data"])})
    return frames


def join_deltas(frames: list[dict[str, Any]]) -> str:
    """The text as a client shows it: each delta stands at its offset, and what was behind that is void."""
    text = ""
    for frame in frames:
        if frame["type"] == DELTA:
            text = text[: frame["payload"]["offset"]] + frame["payload"]["text"]
    return text


async def wait_for_text(writer: Writer, run_id: str) -> None:
    """Wait until the model has begun to answer."""
    texts = writer.agency.harness.services.of(LiveTexts)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (text := texts.find(run_id)) is None or text.length < len("Hello"):
            await asyncio.sleep(0.01)


@pytest.fixture
async def writer(agency: Agency) -> AsyncIterator[Writer]:
    async with start_upstream() as fake:
        yield Writer(agency, fake)


async def test_the_answer_is_told_in_pieces_between_the_events_of_its_step(writer: Writer) -> None:
    await writer.create_agent("poet", "slow-tokens:0.05")
    run_id = await writer.agency.start_run("poet")
    frames = await writer.follow("poet", run_id)
    kinds = [frame["type"] for frame in frames]
    assert join_deltas(frames) == HELLO
    assert kinds.count(DELTA) >= 3
    first, last = kinds.index(DELTA), len(kinds) - 1 - kinds[::-1].index(DELTA)
    assert kinds.index("node_start") < first < last < kinds.index("llm_token_usage")
    # What is not kept has no place in the order of what is.
    assert {frame["id"] for frame in frames if frame["type"] == DELTA} == {None}
    event_ids = [int(frame["id"]) for frame in frames if frame["type"] != DELTA]
    assert event_ids == list(range(1, len(event_ids) + 1))
    assert DELTA not in [event["type"] for event in await writer.agency.list_events("poet", run_id)]
    assert [frame["payload"] for frame in frames if frame["type"] == "run_end"] == [{"output": HELLO}]
    steps = {(frame["payload"]["node_id"], frame["payload"]["step"]) for frame in frames if frame["type"] == DELTA}
    assert steps == {("think", 1)}


async def test_a_late_reader_gets_the_text_so_far_at_once(writer: Writer) -> None:
    await writer.create_agent("poet", "slow-tokens:0.1")
    run_id = await writer.agency.start_run("poet")
    early = asyncio.create_task(writer.follow("poet", run_id))
    await wait_for_text(writer, run_id)
    late = await writer.follow("poet", run_id)
    deltas = [frame["payload"] for frame in late if frame["type"] == DELTA]
    assert deltas[0]["offset"] == 0
    assert len(deltas[0]["text"]) >= len("Hello")
    assert join_deltas(late) == join_deltas(await early) == HELLO


async def test_a_model_that_answers_in_one_piece_is_told_too(writer: Writer) -> None:
    message = {"role": "assistant", "content": "All at once."}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    writer.fake.canned_answers["it"] = CannedAnswer(json.dumps(body).encode())
    await writer.create_agent("poet", "said:it")
    frames = await writer.follow("poet", await writer.agency.start_run("poet"))
    assert join_deltas(frames) == "All at once."
    # It was asked for a stream, and is not asked again.
    assert [request.json["stream"] for request in writer.fake.requests] == [True]


async def test_a_model_that_refuses_to_stream_is_asked_for_an_answer_in_one_piece(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer.create_agent("poet", "plain")
    behave = Upstream._behave

    async def refuse_streams(fake: Upstream, request: Any, wire: Any, body: Any, behaviour: Any) -> Any:
        if body.get("stream"):
            fake.canned_answers["no"] = CannedAnswer(b'{"error": {"message": "Verify your organization."}}', 400)
            behaviour = type(behaviour)("said", "no")
        return await behave(fake, request, wire, body, behaviour)

    monkeypatch.setattr(Upstream, "_behave", refuse_streams)
    run_id = await writer.agency.start_run("poet")
    frames = await writer.follow("poet", run_id)
    assert frames[-1]["payload"] == {"output": HELLO}
    assert join_deltas(frames) == HELLO
    assert [request.json.get("stream") for request in writer.fake.requests] == [True, None]


async def test_users_follow_what_becomes_the_output_and_nothing_else(writer: Writer) -> None:
    user = writer.agency.end_user("ada")
    for name, output, expected_text in (("open", "{{ state.answer }}", HELLO), ("closed", "Thanks.", "")):
        await writer.create_agent(name, "slow-tokens:0.02", output, visibility="authenticated")
        run_id = await writer.agency.start_run(name, by=user)
        mine, owners = await asyncio.gather(writer.follow(name, run_id, user), writer.follow(name, run_id))
        assert (join_deltas(mine), join_deltas(owners)) == (expected_text, HELLO), name


async def test_readers_in_other_processes_get_it_from_a_row_that_goes_with_the_run(writer: Writer) -> None:
    services = writer.agency.harness.services
    await writer.create_agent("poet", "slow-tokens:0.1")
    run_id = await writer.agency.start_run("poet")
    await wait_for_text(writer, run_id)
    # As another process asks for it: with a notice.
    services.of(LiveTexts)._note_wanted(run_id)
    texts: list[str] = []
    row: Any = None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while row is None or not row.has_ended:
            async with services.database.reading() as connection:
                row = (await connection.execute(select(live_texts).where(live_texts.c.run_id == run_id))).first()
            texts += [row.text] if row is not None and row.text not in texts else []
            await asyncio.sleep(0.02)
    assert texts == sorted(texts, key=len)
    assert all(HELLO.startswith(text) for text in texts)
    assert (row.text, row.length, row.node_id, row.step, row.is_output) == (HELLO, len(HELLO), "think", 1, True)
    await writer.agency.wait_for_end("poet", run_id)
    await writer.agency.run_maintenance()
    async with services.database.reading() as connection:
        assert not await connection.scalar(select(func.count()).select_from(live_texts))


def test_a_text_that_is_too_long_is_cut_and_never_has_a_hole() -> None:
    text = LiveText("think", 1, is_output=True)
    for piece in ("a" * (MAX_CHARACTERS - 3), "\0" + "b" * 10, "c"):
        text.append(piece)
    assert text.read(MAX_CHARACTERS - 3) == "\ufffdbb"
    text.restart()
    text.append("d")
    assert (text.read(), text.attempt, text.length) == ("d", 1, 1)
