"""Chat completions in events: what is passed on, how they end, and who may leave when."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from baobab.http.streaming import send_stream
from baobab.tools.ai.read_ahead import ReadAheadBuffer
from baobab.tools.core.stream import Stream
from tests.people import create_key
from tests.tools.ai.conftest import HELLO, LAB_KEY, MINI, TEXT, Installation, join_content

pytestmark = pytest.mark.asyncio(loop_scope="module")

DONE = "[DONE]"


async def test_a_stream_is_the_providers_own_events_and_ends_with_done(world: Installation) -> None:
    events = await world.stream_events()
    assert join_content(events) == TEXT
    assert events[-1] == DONE
    assert events.count(DONE) == 1
    assert [event["choices"][0]["finish_reason"] for event in events[-3:-1]] == [None, "stop"]
    assert {event["object"] for event in events[:-1]} == {"chat.completion.chunk"}


async def test_the_provider_is_always_asked_what_was_used(world: Installation) -> None:
    await world.stream_events(future_field=1)
    sent_body = world.fake.requests[-1].json
    assert sent_body == {
        "messages": HELLO,
        "model": "gpt-4o-mini",
        "future_field": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_what_was_used_is_told_only_to_who_asks(world: Installation) -> None:
    assert not [event for event in await world.stream_events() if event != DONE and event.get("usage")]
    for model in (MINI, "baobab/echo"):
        *_, last, end = await world.stream_events(model, stream_options={"include_usage": True})
        assert (last["choices"], end) == ([], DONE)
        assert last["usage"]["prompt_tokens"] > 0
        assert DONE not in [*_]


async def test_other_options_of_a_stream_are_passed_on(world: Installation) -> None:
    await world.stream_events(stream_options={"include_usage": False, "include_obfuscation": False})
    stream_options = world.fake.requests[-1].json["stream_options"]
    assert stream_options == {"include_usage": True, "include_obfuscation": False}


async def test_a_stream_says_which_model_it_is_and_is_not_kept_by_anybody(world: Installation) -> None:
    headers = (await world.chat(stream=True)).headers
    assert headers["x-baobab-model"] == MINI
    assert headers["x-request-id"]
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store", "no")
    # Nobody knows yet.
    assert "x-baobab-cost-usd" not in headers


@pytest.mark.parametrize("behaviour", ["comments", "split", "slow-tokens:0.001", "no-usage"])
async def test_however_a_provider_sends_its_events_they_arrive(world: Installation, behaviour: str) -> None:
    events = await world.stream_events(world.add_model(behaviour))
    assert join_content(events) == TEXT
    assert events[-1] == DONE


@pytest.mark.parametrize("usage", [False, True])
async def test_a_stream_that_says_why_it_ends_is_whole_without_its_last_event(world: Installation, usage: bool) -> None:
    before = await world.get_spent()
    events = await world.stream_events(world.add_model("no-done"), stream_options={"include_usage": usage})
    assert (join_content(events), events[-1]) == (TEXT, DONE)
    assert await world.get_spent() - before == 11 * 150 + 7 * 600


async def test_a_stream_that_says_why_one_of_its_answers_ends_is_not_whole(world: Installation) -> None:
    *_, last = await world.stream_events(world.add_model("no-done"), n=2)
    assert last["error"]["code"] == "upstream_malformed"


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [
        ("drop:3", "upstream_malformed", "Hello from"),
        ("error-frame:3", "upstream_error", "Hello from"),
        ("error-beside:3", "upstream_error", "Hello from"),
        ("malformed-sse", "upstream_malformed", "Hello"),
    ],
)
async def test_what_fails_in_the_middle_ends_with_one_error_in_our_words(
    world: Installation, behaviour: str, code: str, words: str
) -> None:
    request_count = len(world.fake.requests)
    answer = await world.chat(world.add_model(behaviour), stream=True)
    assert answer.status_code == 200
    frames = [frame.removeprefix("data: ") for frame in answer.text.split("\n\n") if frame]
    *earlier_events, last = map(json.loads, frames)
    assert join_content(earlier_events) == words
    assert (last["error"]["type"], last["error"]["code"]) == ("api_error", code)
    assert not [event for event in earlier_events if "error" in event]
    for theirs in (LAB_KEY, world.fake.url.partition("//")[2], "The upstream failed"):
        assert theirs not in answer.text
    # Once begun it is never tried again: the caller has its beginning.
    assert len(world.fake.requests) == request_count + 1


async def test_what_fails_before_it_begins_is_tried_again(world: Installation) -> None:
    assert join_content(await world.stream_events(world.add_model("flaky:1"))) == TEXT


async def test_an_event_arrives_when_it_is_there_and_not_at_the_end(world: Installation) -> None:
    reader, writer = await open_stream(world, world.add_model("slow-tokens:0.1"))
    await reader.readuntil(b'"content":')
    assert not reader.at_eof()
    assert b"[DONE]" not in reader._buffer  # type: ignore[attr-defined]
    writer.close()
    await world.get_settled_balance()


async def test_callers_who_leave_pay_what_the_provider_counts_where_that_is_soon(world: Installation) -> None:
    slow = world.add_model("slow-tokens:0.15")
    leaving = await create_key(world, scopes=["ai:gateway"])

    async def leave() -> None:
        reader, writer = await open_stream(world, slow, leaving)
        await reader.readuntil(b'"choices"')
        writer.transport.abort()

    await asyncio.gather(*[leave() for _ in range(50)])
    (usage,) = [usage for usage in await world.list_usage() if usage.model == slow]
    assert (usage.requests, usage.prompt_tokens, usage.completion_tokens) == (50, 50 * 11, 50 * 7)


async def test_callers_who_leave_a_long_answer_pay_for_what_came_and_free_the_provider(world: Installation) -> None:
    slow = world.add_model("slow-tokens:1.5")
    broken_off = world.fake.broken_off
    reader, writer = await open_stream(world, slow)
    await reader.readuntil(b'"choices"')
    writer.transport.abort()
    (usage,) = [usage for usage in await world.list_usage() if usage.model == slow]
    # An event each, and the answer has more: they were charged for what came, not for what would have come.
    assert 1 <= usage.completion_tokens < 7
    assert usage.prompt_tokens > 0
    async with asyncio.timeout(20):
        while world.fake.broken_off == broken_off:
            await asyncio.sleep(0.01)


async def test_a_stream_that_fails_with_its_first_event_fails_as_any_other(world: Installation) -> None:
    app_id, failing_model, works = await world.create_app(), world.add_model("error-frame:0"), world.add_model("works")
    before = await world.get_spent()
    answer = await world.chat(failing_model, stream=True)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")
    assert await world.get_spent() == before
    settings = {"fallbackModels": [works]}
    put = await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)
    assert put.status_code == 200
    taken_over = await world.chat(failing_model, stream=True, path=f"/v1/{app_id}")
    assert (taken_over.status_code, taken_over.headers["x-baobab-model"]) == (200, works)


async def test_a_caller_who_leaves_before_the_first_event_frees_the_provider_too(world: Installation) -> None:
    request_count, broken_off_count = len(world.fake.requests), world.fake.broken_off
    slow = world.add_model("slow-tokens:30")
    _, writer = await open_stream(world, slow)
    async with asyncio.timeout(20):
        while len(world.fake.requests) == request_count:
            await asyncio.sleep(0.005)
    # The provider has begun to answer, without an event.
    await asyncio.sleep(0.05)
    writer.transport.abort()
    async with asyncio.timeout(20):
        while world.fake.broken_off == broken_off_count:
            await asyncio.sleep(0.01)
    await world.get_settled_balance()


async def test_a_reader_who_is_slow_has_no_more_read_for_it_than_some_events_and_bytes() -> None:
    for piece, fits in ((b"x", 4), (b"x" * 50, 2)):
        there = ReadAheadBuffer(4, 100)
        for _ in range(2):
            count = 0
            while not there.is_full:
                there.put(piece)
                count += 1
            assert count == fits
            assert await there.take() == piece * fits


async def test_a_reader_who_reads_nothing_is_let_go(world: Installation) -> None:
    close_event = asyncio.Event()
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"data: {}\n\n"
        finally:
            close_event.set()

    async def unread(message: Any) -> None:
        if message["type"] == "http.response.body":
            await never

    async def wait_forever() -> Any:
        await never

    async with asyncio.timeout(20):
        await send_stream(Stream(pieces()), 200, [], wait_forever, unread, stalled_seconds=0.05)
    assert close_event.is_set()


async def open_stream(
    world: Installation, model: str, by: dict[str, str] | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a stream was asked for."""
    host, _, port = world.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"model": model, "messages": HELLO, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:8000\r\ncontent-length: {len(body)}\r\n"
    credential = (by or world.owner)["authorization"]
    writer.write(f"{head}authorization: {credential}\r\n\r\n".encode() + body)
    with contextlib.suppress(ConnectionResetError):
        await writer.drain()
    return reader, writer
