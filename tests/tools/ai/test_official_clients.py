"""OpenAI's own client, told nothing but where the gateway is, over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
from pydantic import BaseModel

from baobab.runtime.gateway.builtin import embeddings
from tests.people import create_key
from tests.tools.ai.conftest import MINI, TEXT, TOOL, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


class Person(BaseModel):
    name: str
    age: int


@pytest_asyncio.fixture(loop_scope="module")
async def client(world: Installation) -> AsyncIterator[openai.AsyncOpenAI]:
    async with world.build_client(max_retries=0) as one:
        yield one


async def test_a_chat(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MINI, messages=USER)
    assert answer.choices[0].message.content == TEXT
    assert answer.usage is not None
    assert answer.usage.total_tokens == 18


async def test_a_chat_with_an_apps_own_address(world: Installation) -> None:
    app_id = await world.create_app()
    user = (await world.user_headers(app_id, "somebody"))["authorization"].removeprefix("Bearer ")
    async with world.build_client(base_url=f"{world.address}/v1/{app_id}", api_key=user) as theirs:
        answer = await theirs.chat.completions.create(model=MINI, messages=USER)
    assert answer.choices[0].message.content == TEXT


async def test_a_picture_is_refused_with_the_path_that_makes_one(world: Installation) -> None:
    app_id = await world.create_app()
    async with world.build_client(base_url=f"{world.address}/v1/{app_id}", api_key=world.key) as client:
        with pytest.raises(openai.APIStatusError) as refusal:
            await client.images.generate(model="baobab/picture", prompt="A baobab")
    assert refusal.value.status_code == 405
    assert "POST /v1/{app_id}/images/completions" in str(refusal.value)


async def test_a_chat_without_async(world: Installation) -> None:
    with openai.OpenAI(base_url=f"{world.address}/v1", api_key=world.key, http_client=httpx.Client()) as client:
        answer = await asyncio.to_thread(client.chat.completions.create, model=MINI, messages=USER)
    assert answer.choices[0].message.content == TEXT


async def test_a_stream_with_usage(client: openai.AsyncOpenAI) -> None:
    options: Any = {"include_usage": True}
    stream = await client.chat.completions.create(model=MINI, messages=USER, stream=True, stream_options=options)
    chunks = [chunk async for chunk in stream]
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == TEXT
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [18]


@pytest.mark.parametrize("model", ["lab/tools:1", "lab/tools:3"])
async def test_tools_are_called_and_their_results_answered(
    world: Installation, client: openai.AsyncOpenAI, model: str
) -> None:
    world.add_model(model.partition("/")[2])
    first = await client.chat.completions.create(model=model, messages=USER, tools=[TOOL])
    message = first.choices[0].message
    calls: Any = message.tool_calls
    assert first.choices[0].finish_reason == "tool_calls"
    assert [call.function.arguments for call in calls] == ['{"city": "Paris"}'] * int(model[-1])
    results: Any = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in calls]
    history: Any = [*USER, message.model_dump(exclude_none=True), *results]
    second = await client.chat.completions.create(model=model, messages=history, tools=[TOOL])
    assert second.choices[0].message.content == TEXT
    assert world.fake.requests[-1].json["messages"] == history


async def test_calls_of_tools_in_a_stream_are_put_together(world: Installation, client: openai.AsyncOpenAI) -> None:
    model = world.add_model("tools:2")
    strict: Any = {**TOOL, "function": {**TOOL["function"], "strict": True}}
    async with client.chat.completions.stream(model=model, messages=USER, tools=[strict]) as stream:
        final = await stream.get_final_completion()
    calls: Any = final.choices[0].message.tool_calls
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("call_0", "get_weather", '{"city": "Paris"}'),
        ("call_1", "get_weather", '{"city": "Paris"}'),
    ]


async def test_an_answer_by_a_schema(client: openai.AsyncOpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Ada, 36"}]
    answer = await client.chat.completions.parse(model="baobab/echo", messages=messages, response_format=Person)
    assert isinstance(answer.choices[0].message.parsed, Person)


async def test_a_schema_reaches_a_provider(world: Installation, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(ValueError, match="JSON"):
        await client.chat.completions.parse(model=MINI, messages=USER, response_format=Person)
    assert world.fake.requests[-1].json["response_format"]["json_schema"]["name"] == "Person"


async def test_pictures_reach_a_provider(world: Installation, client: openai.AsyncOpenAI) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}]
    await client.chat.completions.create(model=MINI, messages=messages)
    assert world.fake.requests[-1].json["messages"] == messages


@pytest.mark.parametrize("name", ["text-embedding-3-small", embeddings.list_installed()[0]])
async def test_embeddings_are_the_same_as_numbers_and_as_text(client: openai.AsyncOpenAI, name: str) -> None:
    numbers = await client.embeddings.create(model=name, input=["a", "b"], encoding_format="float")
    # What the client asks for by itself is base64, which it reads.
    texts = await client.embeddings.create(model=name, input=["a", "b"])
    for one, other in zip(numbers.data, texts.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
    assert [one.index for one in numbers.data] == [0, 1]
    assert numbers.usage.prompt_tokens == texts.usage.prompt_tokens > 0


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    names = [model.id async for model in client.models.list()]
    assert {MINI, "baobab/echo", "openai/text-embedding-3-small"} <= set(names)
    assert names == sorted(names)


async def test_each_refusal_is_the_error_that_the_client_has_for_it(
    world: Installation, client: openai.AsyncOpenAI
) -> None:
    expected_errors: tuple[tuple[str, type[openai.APIStatusError], int], ...] = (
        ("400", openai.BadRequestError, 400),
        ("404", openai.NotFoundError, 404),
        ("429:5", openai.RateLimitError, 429),
        ("500", openai.InternalServerError, 502),
    )
    for behaviour, kind, status in expected_errors:
        with pytest.raises(kind) as refusal:
            await client.chat.completions.create(model=world.add_model(behaviour), messages=USER)
        assert refusal.value.status_code == status
        assert refusal.value.request_id
    for by, kind in (
        ("bb_sk_" + "x" * 40, openai.AuthenticationError),
        (await create_substrate_key(world), openai.PermissionDeniedError),
    ):
        async with world.build_client(api_key=by, max_retries=0) as theirs:
            with pytest.raises(kind):
                await theirs.chat.completions.create(model=MINI, messages=USER)


async def test_an_error_in_a_stream_is_an_error_of_the_client(world: Installation, client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model=world.add_model("drop:3"), messages=USER, stream=True)
    with pytest.raises(openai.APIError, match="broke off"):
        async for _ in stream:
            pass


async def test_the_client_tries_again_what_is_busy(world: Installation) -> None:
    request_count = len(world.fake.requests)
    busy = world.add_model("429:0")
    async with world.build_client(max_retries=2) as theirs:
        with pytest.raises(openai.RateLimitError) as refusal:
            await theirs.chat.completions.create(model=busy, messages=USER)
    assert refusal.value.response.headers["retry-after"] == "0"
    assert len(world.fake.requests) == request_count + 3


async def test_the_client_gives_up_when_it_has_waited_enough(world: Installation) -> None:
    slow = world.add_model("slow-first:60")
    async with world.build_client(max_retries=0, timeout=0.2) as theirs:
        with pytest.raises(openai.APITimeoutError):
            await theirs.chat.completions.create(model=slow, messages=USER)


async def create_substrate_key(world: Installation) -> str:
    return (await create_key(world, scopes=["substrate"]))["authorization"].removeprefix("Bearer ")
