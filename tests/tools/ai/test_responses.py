"""OpenAI's own client on the wire of responses: whichever model answers."""

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from pydantic import BaseModel
from sqlalchemy import select, update

from baobab.runtime.gateway.gateway import Gateway
from baobab.tools.ai.tables import response_cache
from tests.people import create_person
from tests.tools.ai.conftest import MINI, TEXT, Installation, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Relayed to the vendor of the wire; told in its words by a provider of another wire, and by the built-in model.
LAB, ECHO = "lab/plain", "baobab/echo"
WEATHER: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
USER = "What is the weather in Paris?"


class Person(BaseModel):
    name: str
    age: int


@pytest_asyncio.fixture(loop_scope="module")
async def client(world: Installation) -> AsyncIterator[openai.AsyncOpenAI]:
    world.add_model("plain")
    async with world.build_client(max_retries=0) as one:
        yield one


async def post_response(world: Installation, **body: Any) -> Any:
    request_body = {"model": MINI, "input": USER, **body}
    return await world.client.post("/v1/responses", json=request_body, headers=world.owner)


@pytest.mark.parametrize("model", [MINI, LAB])
async def test_a_response(client: openai.AsyncOpenAI, model: str) -> None:
    response = await client.responses.create(model=model, input=USER)
    assert (response.output_text, response.status) == (TEXT, "completed")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (11, 7, 18)


@pytest.mark.parametrize("model", [MINI, LAB])
async def test_a_streamed_response(client: openai.AsyncOpenAI, model: str) -> None:
    async with client.responses.stream(model=model, input=USER) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == TEXT
    assert [event.text for event in events if event.type == "response.output_text.done"] == [TEXT]
    assert (final.output_text, final.status) == (TEXT, "completed")
    assert final.usage is not None
    assert final.usage.total_tokens == 18


async def test_events_are_numbered_and_in_the_order_of_the_wire(
    world: Installation, client: openai.AsyncOpenAI
) -> None:
    for model in (MINI, LAB):
        events = parse_events((await post_response(world, model=model, stream=True)).text)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        kinds = [event["type"].removeprefix("response.") for event in events if event["type"] != "response.in_progress"]
        assert kinds == [
            "created",
            "output_item.added",
            "content_part.added",
            *["output_text.delta"] * 7,
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]


@pytest.mark.parametrize("server", ["openai", "lab"])
@pytest.mark.parametrize("calls", [1, 3])
async def test_tools_are_called_and_their_results_answered(
    world: Installation, client: openai.AsyncOpenAI, server: str, calls: int
) -> None:
    model = world.add_model(f"tools:{calls}", server=server)
    first = await client.responses.create(model=model, input=USER, tools=[WEATHER])
    tool_calls = [item for item in first.output if item.type == "function_call"]
    assert [(call.name, call.arguments) for call in tool_calls] == [("get_weather", '{"city": "Paris"}')] * calls
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in tool_calls]
    items: Any = [{"role": "user", "content": USER}, *first.output, *results]
    second = await client.responses.create(model=model, input=items, tools=[WEATHER])
    assert second.output_text == TEXT


async def test_calls_at_once_are_one_message_elsewhere(world: Installation, client: openai.AsyncOpenAI) -> None:
    picture = [
        {"type": "input_text", "text": "a map"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
    ]
    items: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": USER}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "run", "input": "ls"},
        {"type": "function_call_output", "call_id": "a", "output": picture},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "files"},
        {"role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": "data:x"}]},
    ]
    custom: Any = {
        "type": "custom",
        "name": "run",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
    }
    schema: Any = {"type": "json_schema", "name": "P", "schema": {"type": "object"}, "strict": True}
    await client.responses.create(
        model=LAB,
        instructions="Be kind.",
        input=items,
        tools=[WEATHER, custom],
        tool_choice={"type": "function", "name": "get_weather"},
        text={"format": schema},
        max_output_tokens=64,
        parallel_tool_calls=False,
        temperature=0.5,
        metadata={"a": "b"},
        extra_body={"field_of_tomorrow": 1},
    )
    request = world.fake.requests[-1]
    function = {"name": "get_weather", "strict": False, "parameters": {"type": "object"}}
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /x/"}}
    assert request.path == "/v1/chat/completions"
    assert request.json == {
        "model": "plain",
        "max_tokens": 64,
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "field_of_tomorrow": 1,
        "tools": [
            {"type": "function", "function": function},
            {"type": "custom", "custom": {"name": "run", "format": grammar}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "P", "schema": {"type": "object"}, "strict": True},
        },
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": USER}]},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
                    {"id": "b", "type": "custom", "custom": {"name": "run", "input": "ls"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "a map"},
            {"role": "tool", "tool_call_id": "b", "content": "files"},
            {
                "role": "user",
                "content": [
                    {
                        "type": "image_url",
                        "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
                    }
                ],
            },
            {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:x"}}]},
        ],
    }


@pytest.mark.parametrize("server", ["openai", "lab"])
async def test_calls_of_tools_in_a_stream_are_put_together(
    world: Installation, client: openai.AsyncOpenAI, server: str
) -> None:
    model = world.add_model("tools:2", server=server)
    async with client.responses.stream(model=model, input=USER, tools=[WEATHER]) as stream:
        final = await stream.get_final_response()
    calls = [item for item in final.output if item.type == "function_call"]
    assert [call.arguments for call in calls] == ['{"city": "Paris"}'] * 2
    assert len({call.call_id for call in calls}) == 2


async def test_the_built_in_model_plans_and_quotes_results(client: openai.AsyncOpenAI) -> None:
    question = '/call get_weather {"city": "Paris"}\n/call get_weather {"city": "Rome"}'
    first = await client.responses.create(model=ECHO, input=question, tools=[WEATHER])
    tool_calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(call.arguments) for call in tool_calls] == [{"city": "Paris"}, {"city": "Rome"}]
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in tool_calls]
    items: Any = [{"role": "user", "content": question}, *first.output, *results]
    async with client.responses.stream(model=ECHO, input=items, tools=[WEATHER]) as stream:
        final = await stream.get_final_response()
    assert "rain" in final.output_text


async def test_an_answer_by_a_schema(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.parse(model=ECHO, input="Ada, 36", text_format=Person)
    assert isinstance(response.output_parsed, Person)
    async with client.responses.stream(model=ECHO, input="Ada, 36", text_format=Person) as stream:
        final = await stream.get_final_response()
    assert isinstance(final.output_parsed, Person)


async def test_the_vendor_is_sent_what_was_asked_and_stores_nothing(
    world: Installation, client: openai.AsyncOpenAI
) -> None:
    items: Any = [
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
    ]
    further: Any = {"field_of_tomorrow": {"a": [1]}}
    text: Any = {"verbosity": "low"}
    await client.responses.create(model=MINI, input=items, store=True, text=text, extra_body=further)
    request = world.fake.requests[-1]
    assert request.path == "/v1/responses"
    assert request.json == {"model": "gpt-4o-mini", "input": items, "store": False, "text": text, **further}


async def test_thoughts_come_sealed_where_nothing_is_stored(world: Installation) -> None:
    sealed_thoughts = "reasoning.encrypted_content"
    for further, include in (
        ({}, [sealed_thoughts]),
        ({"include": ["message.output_text.logprobs"]}, 2),
        ({"include": [sealed_thoughts]}, 1),
    ):
        assert (await post_response(world, model="openai/gpt-5-mini", **further)).status_code == 200
        sent_include = world.fake.requests[-1].json["include"]
        assert sent_include == include or len(sent_include) == include
        assert sealed_thoughts in sent_include


async def test_a_model_of_a_third_wire_is_asked_on_that(world: Installation, client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(model="claude-haiku-4-5", input=USER, instructions="Be brief.") as stream:
        final = await stream.get_final_response()
    assert final.output_text == TEXT
    request = world.fake.requests[-1]
    assert (request.path, request.json["system"]) == ("/v1/messages", [{"type": "text", "text": "Be brief."}])


async def test_a_model_that_has_no_chat_completions_is_relayed(world: Installation, client: openai.AsyncOpenAI) -> None:
    gateway = world.application.services.part(Gateway)
    only = next(model for model in gateway.catalogue.list_models("chat") if "responses_only" in model.features)
    response = await client.responses.create(model=only.id, input=USER)
    assert response.output_text == TEXT
    assert world.fake.requests[-1].path == "/v1/responses"


async def test_the_error_that_ends_a_stream_is_numbered_too(world: Installation) -> None:
    for server in ("openai", "lab"):
        events = parse_events(
            (await post_response(world, model=world.add_model("drop:5", server=server), stream=True)).text
        )
        assert (events[-1]["type"], events[-1]["sequence_number"]) == ("error", len(events) - 1)


async def test_what_a_broken_stream_has_written_is_estimated_once(world: Installation) -> None:
    # All but the last event of the one wire, and of the other all that is said: each has said all of it.
    for server, behaviour in (("openai", "drop:13"), ("lab", "drop:8")):
        before = {usage.model: usage.completion_tokens for usage in await world.list_usage()}
        model = world.add_model(behaviour, server=server)
        await post_response(world, model=model, stream=True)
        after = {usage.model: usage.completion_tokens for usage in await world.list_usage()}
        # What repeats it is not counted again.
        assert 7 <= after[model] - before.get(model, 0) <= 9


async def test_the_built_in_model_stops_at_the_limit(world: Installation) -> None:
    for stream in (False, True):
        answer = await post_response(world, model=ECHO, max_output_tokens=3, stream=stream)
        response = parse_events(answer.text)[-1]["response"] if stream else answer.json()
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert response["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("model", [MINI, LAB, ECHO])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_goes_on_with_a_stored_response(world: Installation, model: str, *, stream: bool) -> None:
    world.add_model("plain")

    async def fetch_response(**body: Any) -> Any:
        answer = await post_response(world, model=model, stream=stream, **body)
        assert answer.status_code == 200, answer.text
        return parse_events(answer.text)[-1]["response"] if stream else answer.json()

    # Three upstream answers have the same id here; what is stored last is what counts.
    first = await fetch_response(input="One")
    second = await fetch_response(input=[{"role": "user", "content": "Two"}], previous_response_id=first["id"])
    assert (first["store"], first["previous_response_id"], second["previous_response_id"]) == (True, None, first["id"])
    await fetch_response(input="Three", previous_response_id=second["id"], instructions="Be brief.")
    if model != ECHO:
        sent_body = world.fake.requests[-1].json
        items = sent_body["input"] if model == MINI else sent_body["messages"][1:]
        assert [item["role"] for item in items] == ["user", "assistant", "user", "assistant", "user"]
        assert [items[at]["content"] for at in (0, 2, 4)] == ["One", "Two", "Three"]
        assert "previous_response_id" not in sent_body


async def test_a_stored_response_is_read_and_forgotten(world: Installation, client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model=ECHO, input="One")
    again = await client.responses.retrieve(response.id)
    assert (again.id, again.output_text) == (response.id, response.output_text)
    await client.responses.delete(response.id)
    for method in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            await method(response.id)
    refusal = await post_response(world, previous_response_id=response.id)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (404, "response_not_found")


async def test_what_is_not_to_be_stored_is_not(world: Installation) -> None:
    body = (await post_response(world, model=ECHO, store=False)).json()
    assert body["store"] is False
    read = await world.client.get(f"/v1/responses/{body['id']}", headers=world.owner)
    assert read.status_code == 404


async def test_strangers_do_not_find_a_response_by_its_id(world: Installation) -> None:
    body = (await post_response(world, model=ECHO)).json()
    stranger = (await create_person(world, "stranger-of-responses")).headers
    path = f"/v1/responses/{body['id']}"
    assert (await world.client.get(path, headers=stranger)).status_code == 404
    assert (await world.client.delete(path, headers=stranger)).status_code == 404
    goes_on = {"model": ECHO, "input": "x", "previous_response_id": body["id"]}
    assert (await world.client.post("/v1/responses", json=goes_on, headers=stranger)).status_code == 404
    assert (await world.client.get(path, headers=world.owner)).json() == body


async def test_a_response_is_sealed_and_gone_after_its_time(world: Installation) -> None:
    body = (await post_response(world, model=ECHO, input="A word that is nowhere else: quokka")).json()
    database = world.application.services.database
    async with database.reading() as connection:
        rows = (await connection.execute(select(response_cache.c.answer))).scalars().all()
    assert rows
    assert not any("quokka" in row for row in rows)
    async with database.writing() as connection:
        await connection.execute(update(response_cache).values(expires_at=world.application.services.clock.now()))
    read = await world.client.get(f"/v1/responses/{body['id']}", headers=world.owner)
    assert read.status_code == 404


async def test_a_conversation_that_is_too_long_to_be_stored_says_so(world: Installation) -> None:
    body = (await post_response(world, model=world.add_model("huge"))).json()
    assert body["store"] is False


async def test_thoughts_are_an_item_of_their_own(world: Installation) -> None:
    thoughtful = world.add_model("thoughts")
    for stream in (False, True):
        answer = await post_response(world, model=thoughtful, stream=stream)
        response = parse_events(answer.text)[-1]["response"] if stream else answer.json()
        assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
        assert response["output"][0]["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
