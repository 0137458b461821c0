"""The gateway's patience: how long a provider may be silent, how much it may say, and who is asked then."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from baobab.runtime.gateway import first_event
from baobab.runtime.gateway.catalogue import Catalogue
from baobab.runtime.gateway.errors import UpstreamFailed, UpstreamMalformed, UpstreamTimeout
from baobab.runtime.gateway.first_event import wait_for_first_event
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.providers import build_own_server
from baobab.runtime.gateway.refusal import build_refusal
from baobab.runtime.gateway.relay import Relay
from baobab.runtime.gateway.retry_timeouts import RetryTimeouts
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.storage.clock import Ids
from tests.clock import FixedClock
from tests.runtime.gateway.upstream import CannedAnswer, Upstream, start_upstream
from tests.servers import TIMEOUT_SECONDS

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello!"}]}


@contextlib.asynccontextmanager
async def open_gateway(
    behaviour: str, largest: int = 2**20, **bounds: float
) -> AsyncIterator[tuple[Gateway, Model, Upstream]]:
    clock = FixedClock()
    limits: Any = {"largest": largest, "retry_timeouts": RetryTimeouts(**bounds)}
    async with start_upstream() as fake:
        gateway = Gateway(Catalogue(clock, ()), [], clock, Ids(), relay=Relay(**limits))
        free, features = Price(0, 0), frozenset(("streaming",))
        model = Model(f"lab/{behaviour}", behaviour, "chat", free, None, None, f"lab/{behaviour}", "lab", features)
        gateway.add_provider(build_own_server("lab", f"{fake.url}/v1"), [model])
        yield gateway, model, fake
        await gateway.close()


@pytest.mark.parametrize(
    ("method", "bounds"),
    [("complete_chat", {"total": 0.05}), ("stream_chat", {"total": 0.05}), ("stream_chat", {"first": 0.05})],
)
async def test_a_provider_that_says_nothing_is_given_up_and_not_asked_again(
    method: str, bounds: dict[str, Any]
) -> None:
    async with open_gateway("slow-first:30", **bounds) as (gateway, model, fake):
        meter = UsageMeter()
        with pytest.raises(UpstreamTimeout) as error_info:
            await getattr(gateway, method)(model, BODY, meter)
        assert not meter.has_begun
        # It may be at work, and paid for it. Official clients would ask again by themselves.
        assert len(fake.requests) == 1
        assert error_info.value.headers["x-should-retry"] == "false"


async def test_an_answer_in_one_piece_may_be_silent_for_as_long_as_it_may_take() -> None:
    async with open_gateway("slow-first:0.2", first=0.05, between=0.05, total=20) as (gateway, model, _):
        assert (await gateway.complete_chat(model, BODY, UsageMeter()))["choices"]


async def test_a_call_may_have_less_time_than_the_gateway_and_never_more() -> None:
    async with open_gateway("slow-first:30", total=20) as (gateway, model, _):
        with pytest.raises(UpstreamTimeout):
            await gateway.complete_chat(model, BODY, UsageMeter(), retry_timeouts=RetryTimeouts(total=0.05))
    async with open_gateway("slow-first:30", total=0.05) as (gateway, model, _):
        with pytest.raises(UpstreamTimeout):
            await gateway.complete_chat(model, BODY, UsageMeter(), retry_timeouts=RetryTimeouts(total=20))


async def test_all_tries_of_a_call_share_its_time() -> None:
    async with open_gateway("503", total=0.15) as (gateway, model, fake):
        with pytest.raises(UpstreamFailed):
            await gateway.complete_chat(model, BODY, UsageMeter())
        # The third would begin after three tenths of a second.
        assert len(fake.requests) < 3


async def test_what_was_never_sent_is_tried_again() -> None:
    async with open_gateway("plain") as (gateway, model, fake):
        gateway.add_provider(build_own_server("lab", "http://127.0.0.1:9/v1"), [model])
        with pytest.raises(UpstreamFailed) as error_info:
            await gateway.complete_chat(model, BODY, UsageMeter())
        assert error_info.value.is_unbilled
        assert not fake.requests


async def test_a_stream_that_falls_silent_ends_with_a_timeout() -> None:
    async with open_gateway("slow-tokens:0.2", between=0.1) as (gateway, model, fake):
        meter = UsageMeter()
        pieces = await gateway.stream_chat(model, BODY, meter)
        with pytest.raises(UpstreamTimeout):
            async for _ in pieces:
                pass
        assert meter.has_begun
        assert len(fake.requests) == 1


async def test_a_stream_that_never_has_an_event_has_not_begun() -> None:
    async with open_gateway("slow-tokens:30", first=0.05) as (gateway, model, fake):
        meter = UsageMeter()
        with pytest.raises(UpstreamTimeout):
            await gateway.stream_chat(model, BODY, meter)
        assert not meter.has_begun
        assert len(fake.requests) == 1


async def test_a_stream_that_begins_with_an_error_has_not_begun() -> None:
    async with open_gateway("error-frame:0") as (gateway, model, fake):
        meter = UsageMeter()
        with pytest.raises(UpstreamFailed):
            await gateway.stream_chat(model, BODY, meter)
        assert not meter.has_begun
        assert len(fake.requests) == 3


async def test_what_nobody_counted_is_estimated_by_events_or_by_what_they_say() -> None:
    few, many = UsageMeter(), UsageMeter()
    for meter, text in ((few, "a"), (many, "four letter words " * 20)):
        meter.record_event(b": still working\n\n")
        meter.record_event(b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % text.encode())
        meter.record_event(b"data: [DONE]\n\n")
        meter.estimate_usage(40)
    assert (few.prompt, few.completion) == (10, 1)
    assert (many.prompt, many.completion) == (10, 90)


async def test_a_stream_may_be_slow_as_long_as_it_is_not_silent() -> None:
    async with open_gateway("slow-tokens:0.01", first=5, between=5) as (gateway, model, _):
        pieces = [piece async for piece in await gateway.stream_chat(model, BODY, UsageMeter())]
    assert pieces[-1] == b"data: [DONE]\n\n"


async def test_an_answer_that_is_too_long_is_no_answer() -> None:
    async with open_gateway("huge:200000", largest=100_000) as (gateway, model, _):
        meter = UsageMeter()
        with pytest.raises(UpstreamMalformed):
            await gateway.complete_chat(model, BODY, meter)
        assert not meter.has_begun


async def test_a_count_that_cannot_be_is_no_count() -> None:
    meter = UsageMeter()
    usage: Any
    for usage in (
        {"prompt_tokens": -1},
        {"prompt_tokens": 10**30},
        {"prompt_tokens": "11"},
        {"prompt_tokens": True},
        [],
        None,
    ):
        meter.count_usage(usage)
    assert not meter.is_counted
    meter.count_usage({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}})
    # More of the prompt than all of it was not cached.
    assert (meter.prompt, meter.completion, meter.cached) == (5, 2, 5)


async def test_comments_without_end_do_not_keep_a_stream_from_being_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_event, "_FIRST_SECONDS", 0.05)

    async def comments() -> AsyncGenerator[bytes, None]:
        while True:
            yield b":\n\n"
            await asyncio.sleep(0)

    async with asyncio.timeout(TIMEOUT_SECONDS):
        pieces = await wait_for_first_event(comments(), UsageMeter())
        assert await anext(pieces) == b":\n\n"
        await pieces.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        {"data": []},
        {"choices": [{"index": 0, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "tool_calls": ["call"]}}]},
        {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "tool_calls": 1}}]},
    ],
)
async def test_what_is_no_chat_completion_is_no_answer_to_a_chat(answer: dict[str, Any]) -> None:
    async with open_gateway("said:it") as (gateway, model, fake):
        fake.canned_answers["it"] = CannedAnswer(json.dumps(answer).encode())
        meter = UsageMeter()
        with pytest.raises(UpstreamMalformed):
            await gateway.complete_chat(model, BODY, meter)
        assert not meter.has_begun


@pytest.mark.parametrize("answer", [{"choices": []}, {"data": "none"}, {"data": [[0.5]]}])
async def test_what_is_no_list_of_vectors_is_no_answer_to_texts(answer: dict[str, Any]) -> None:
    async with open_gateway("said:it") as (gateway, model, fake):
        fake.canned_answers["it"] = CannedAnswer(json.dumps(answer).encode())
        with pytest.raises(UpstreamMalformed):
            await gateway.embed_texts(model, {"input": "Hello!"}, UsageMeter())


@pytest.mark.parametrize(
    ("theirs", "seconds"), [("17", 17), (None, 1), ("", 1), ("-5", 0), ("999999", 86400), ("\xb2", 1)]
)
async def test_how_long_to_wait_is_told_as_a_number(theirs: str | None, seconds: int) -> None:
    headers = {} if theirs is None else {"retry-after": theirs}
    assert build_refusal(429, b"", headers).retry_after == seconds


@pytest.mark.parametrize(
    ("usage", "expected_counts"),
    [
        # OpenAI has the tokens of thoughts among those of the completion, xAI beside them.
        ({"total_tokens": 41, "completion_tokens_details": {"reasoning_tokens": 5}}, (32, 9, 5, 0)),
        ({"total_tokens": 135, "completion_tokens_details": {"reasoning_tokens": 94}}, (32, 103, 94, 0)),
        # OpenAI, DeepSeek and Moonshot say each in a field of its own what came from the cache.
        ({"prompt_tokens_details": {"cached_tokens": 8}, "cached_tokens": 7}, (32, 9, 0, 8)),
        ({"prompt_cache_hit_tokens": 30, "prompt_cache_miss_tokens": 2}, (32, 9, 0, 30)),
        ({"cached_tokens": 7}, (32, 9, 0, 7)),
    ],
)
async def test_what_was_used_is_counted_as_its_vendor_says_it(
    usage: dict[str, Any], expected_counts: tuple[int, int, int, int]
) -> None:
    meter = UsageMeter()
    meter.count_usage({"prompt_tokens": 32, "completion_tokens": 9, **usage})
    assert (meter.prompt, meter.completion, meter.reasoning, meter.cached) == expected_counts
