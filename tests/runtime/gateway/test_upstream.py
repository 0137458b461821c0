"""The fake provider speaks the vendors' wires, and fails in the ways that tests of the gateway count on."""

import asyncio
import json
import math
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.runtime.gateway.upstream import MODELS, Upstream, start_upstream
from tests.runtime.gateway.upstream_wires import PROMPT_TOKENS
from tests.servers import TIMEOUT_SECONDS

TEXT = "Hello from the upstream, Grüße!"
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


@pytest.fixture
async def fake() -> AsyncIterator[Upstream]:
    async with start_upstream() as running:
        yield running


@pytest.fixture
async def client(fake: Upstream) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{fake.url}/v1", api_key="sk-test", max_retries=0, http_client=httpx.AsyncClient()
    ) as one:
        yield one


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as one:
        yield one


async def create_chat(client: openai.AsyncOpenAI, model: str, **request: Any) -> Any:
    return await client.chat.completions.create(
        model=model, messages=request.pop("messages", [{"role": "user", "content": "hi"}]), **request
    )


async def collect_chunks(client: openai.AsyncOpenAI, model: str, **request: Any) -> list[ChatCompletionChunk]:
    return [chunk async for chunk in await create_chat(client, model, stream=True, **request)]


def join_content(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


async def test_a_chat_is_answered_and_remembered(fake: Upstream, client: openai.AsyncOpenAI) -> None:
    answer = await create_chat(client, "gpt-4o-mini", extra_body={"unknown": 1})
    assert answer.choices[0].message.content == TEXT
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (PROMPT_TOKENS, 7)
    [request] = fake.requests
    assert request.headers["authorization"] == "Bearer sk-test"
    assert (request.path, request.json["unknown"]) == ("/v1/chat/completions", 1)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "split", "comments", "slow-tokens:0.001", "slow-first:0.001"])
async def test_a_stream_is_the_same_text_however_it_is_cut(client: openai.AsyncOpenAI, model: str) -> None:
    chunks = await collect_chunks(client, model, stream_options={"include_usage": True})
    assert join_content(chunks) == TEXT
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 7
    assert all(chunk.usage is None for chunk in await collect_chunks(client, model))


async def test_usage_may_be_missing_and_tokens_cached(client: openai.AsyncOpenAI) -> None:
    assert (await create_chat(client, "no-usage")).usage is None
    chunks = await collect_chunks(client, "no-usage", stream_options={"include_usage": True})
    assert all(chunk.usage is None for chunk in chunks)
    assert (await create_chat(client, "cached:5")).usage.prompt_tokens_details.cached_tokens == 5


async def test_a_tool_is_called_until_its_results_are_there(client: openai.AsyncOpenAI) -> None:
    answer = await create_chat(client, "tools:2", tools=[TOOL])
    calls = answer.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["get_weather", "get_weather"]
    assert json.loads(calls[0].function.arguments) == {"city": "Paris"}
    results = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in calls]
    assert (await create_chat(client, "tools:2", tools=[TOOL], messages=results)).choices[0].message.content == TEXT


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [("401", 401, "upstream_401"), ("context", 400, "context_length_exceeded"), ("503", 503, "upstream_503")],
)
async def test_it_fails_as_the_model_says(client: openai.AsyncOpenAI, model: str, status: int, code: str) -> None:
    with pytest.raises(openai.APIStatusError) as error_info:
        await create_chat(client, model)
    assert (error_info.value.status_code, error_info.value.code) == (status, code)


async def test_too_many_requests_say_when_to_come_again(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as error_info:
        await create_chat(client, "429:7")
    assert error_info.value.response.headers["retry-after"] == "7"


async def test_a_header_chooses_before_the_name(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError):
        await create_chat(client, "gpt-4o-mini", extra_headers={"x-upstream": "500"})


async def test_a_flaky_model_recovers(client: openai.AsyncOpenAI) -> None:
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            await create_chat(client, "flaky:2")
    assert (await create_chat(client, "flaky:2")).choices[0].message.content == TEXT


async def read_into(session: aiohttp.ClientSession, fake: Upstream, into: bytearray, **request: Any) -> int:
    async with session.post(f"{fake.url}/v1/chat/completions", json=request, allow_redirects=False) as answer:
        async for piece in answer.content.iter_any():
            into += piece
        return answer.status


async def test_a_connection_may_break_off_anywhere(fake: Upstream, session: aiohttp.ClientSession) -> None:
    got = bytearray()
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await read_into(session, fake, got, model="drop-first")
    assert not got
    with pytest.raises(aiohttp.ClientPayloadError):
        await read_into(session, fake, got, model="drop")
    assert got
    got.clear()
    with pytest.raises(aiohttp.ClientPayloadError):
        await read_into(session, fake, got, model="drop:3", stream=True)
    assert got.count(b"\n\n") == 3


@pytest.mark.parametrize(("model", "status"), [("html", 502), ("malformed-json", 200), ("redirect", 307)])
async def test_an_answer_may_be_no_json(
    fake: Upstream, session: aiohttp.ClientSession, model: str, status: int
) -> None:
    got = bytearray()
    assert await read_into(session, fake, got, model=model) == status
    with pytest.raises(json.JSONDecodeError):
        json.loads(got)


async def test_a_stream_may_be_faulty_and_end_all_the_same(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APIError, match="in the middle"):
        await collect_chunks(client, "error-frame")
    with pytest.raises(json.JSONDecodeError):
        await collect_chunks(client, "malformed-sse")
    assert join_content(await collect_chunks(client, "no-done")) == TEXT


async def test_it_notices_a_reader_who_goes_away(fake: Upstream, session: aiohttp.ClientSession) -> None:
    request = {"model": "slow-tokens:0.01", "stream": True}
    async with session.post(f"{fake.url}/v1/chat/completions", json=request) as answer:
        await answer.content.readany()
        answer.close()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not fake.broken_off:
            await asyncio.sleep(0.005)


async def test_a_huge_answer_is_as_large_as_asked(client: openai.AsyncOpenAI) -> None:
    assert len((await create_chat(client, "huge:100000")).choices[0].message.content) == 100_000
    assert len(join_content(await collect_chunks(client, "huge:100000"))) == 100_000


async def test_what_was_received_can_be_the_answer(client: openai.AsyncOpenAI) -> None:
    payload = json.loads((await create_chat(client, "echo", user="u1")).choices[0].message.content)
    assert payload["body"]["user"] == "u1"
    assert payload["path"] == "/v1/chat/completions"


async def test_embeddings_are_the_same_in_both_encodings(client: openai.AsyncOpenAI) -> None:
    # The client asks for base64 unless it is told otherwise.
    short = await client.embeddings.create(model="text-embedding-3-small", input=["a", "b"], dimensions=4)
    plain = await client.embeddings.create(
        model="text-embedding-3-small", input=["a", "b"], dimensions=4, encoding_format="float"
    )
    assert [len(entry.embedding) for entry in short.data] == [4, 4]
    for ours, theirs in zip(short.data, plain.data, strict=True):
        assert all(math.isclose(*pair, rel_tol=1e-6) for pair in zip(ours.embedding, theirs.embedding, strict=True))
    assert [model.id async for model in client.models.list()] == list(MODELS)


async def test_responses_are_answered_whole_and_in_events(client: openai.AsyncOpenAI) -> None:
    whole = await client.responses.create(model="gpt-4o-mini", input="hi")
    assert whole.output_text == TEXT
    tool: Any = {"type": "function", "name": "get_weather", "parameters": {}, "strict": False}
    response = await client.responses.create(model="tools", input="hi", tools=[tool])
    assert [item.type for item in response.output] == ["function_call"]
    async with client.responses.stream(model="gpt-4o-mini", input="hi") as events:
        final = await events.get_final_response()
    assert final.output_text == TEXT
    assert final.usage is not None
    assert final.usage.input_tokens == PROMPT_TOKENS


async def test_it_runs_as_a_program_and_tells_its_port(session: aiohttp.ClientSession) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.runtime.gateway.upstream", "--port", "0", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        async with session.get(f"http://127.0.0.1:{port}/v1/models") as answer:
            assert answer.status == 200
    finally:
        process.terminate()
        await process.wait()
