"""What cannot be translated for a provider is refused by its field before anything is sent."""

import json
from dataclasses import replace
from typing import Any

import pytest

from baobab.runtime.gateway.gateway import Gateway
from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import HELLO, Installation, add_translated_model

pytestmark = pytest.mark.asyncio(loop_scope="module")

Conversation = list[dict[str, Any]]
VENDORS = ("anthropic", "gemini", "openai")


async def add_model(world: Installation, vendor: str, behaviour: str) -> str:
    """A model that behaves so. One of OpenAI's is called by the Responses API, which is translated as well."""
    if vendor != "openai":
        return await add_translated_model(world, behaviour, vendor)
    catalogue = world.application.services.part(Gateway).catalogue
    base_model = catalogue.find_model("openai/gpt-5-pro")
    assert base_model is not None
    model = replace(base_model, id=f"openai/translated-{behaviour}", litellm=f"openai/{behaviour}")
    catalogue.register_models(f"responses {behaviour}", [model])
    return model.id


def ask(*parts: Any) -> Conversation:
    return [{"role": "user", "content": list(parts)}]


def call_tool(**function: Any) -> Conversation:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}", **function}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
    return [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}, result]


def offer_tool(function: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": function}]}


def require_json(json_schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": json_schema}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_part_of_an_unknown_type_is_refused_by_its_place(
    world: Installation, vendor: str, *, stream: bool
) -> None:
    app_id = await world.create_app()
    settings = {"fallbackModels": [world.add_model("works")]}
    await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)
    model, before = await add_model(world, vendor, "plain"), await world.get_spent()
    request_count = len(world.fake.requests)
    messages = ask({"type": "text", "text": "What is this?"}, {"type": "smell", "smell": "rose"})
    refusal = await world.chat(model, path=f"/v1/{app_id}", messages=messages, stream=stream)
    assert refusal.status_code == 400, refusal.text
    error = refusal.json()["error"]
    assert (error["code"], error["type"]) == ("invalid_request", "invalid_request_error")
    assert error["param"] == "messages[0].content[1].type"
    assert error["message"].startswith("`messages[0].content[1].type` must be `text`, `image_url`,")
    # Neither the provider nor a fallback model has been asked.
    assert (len(world.fake.requests), await world.get_spent()) == (request_count, before)
    assert (await world.chat(model)).status_code == 200


@pytest.mark.parametrize(
    ("vendor", "body", "param"),
    [
        ("anthropic", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ("gemini", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ("openai", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ("anthropic", {"messages": [{"role": "user"}]}, "messages[0].content"),
        ("anthropic", {"messages": ask(5)}, "messages[0].content[0]"),
        ("gemini", {"messages": ask(5)}, "messages[0].content[0]"),
        ("gemini", {"messages": ask({"type": "text", "text": 5})}, "messages[0].content[0].text"),
        ("gemini", {"messages": ask({"type": "image_url", "image_url": 5})}, "messages[0].content[0].image_url"),
        (
            "gemini",
            {"messages": ask({"type": "image_url", "image_url": {"url": "rose"}})},
            "messages[0].content[0].image_url.url",
        ),
        ("gemini", {"messages": ask({"type": "input_audio", "input_audio": 7})}, "messages[0].content[0].input_audio"),
        ("gemini", {"messages": ask({"type": "file", "file": {}})}, "messages[0].content[0].file.file_data"),
        ("gemini", {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ("gemini", {"messages": call_tool()[::2]}, "messages[1].tool_call_id"),
        ("gemini", {"messages": call_tool(arguments="{")}, "messages[1].tool_calls[0].function.arguments"),
        ("openai", {"messages": [*HELLO, {"role": "assistant", "tool_calls": 5}]}, "messages[1].tool_calls"),
        ("anthropic", {"tools": [{"type": "function"}]}, "tools[0].function"),
        ("anthropic", offer_tool({}), "tools[0].function.name"),
        ("anthropic", offer_tool({"name": "f", "parameters": 5}), "tools[0].function.parameters"),
        ("gemini", {**offer_tool({"name": "f"}), "tool_choice": 5}, "tool_choice"),
        ("gemini", {**offer_tool({"name": "f"}), "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ("openai", {"response_format": 5}, "response_format"),
        ("anthropic", {"response_format": {}}, "response_format.type"),
        ("gemini", require_json(5), "response_format.json_schema"),
        ("anthropic", require_json({"name": "x", "schema": 5}), "response_format.json_schema.schema"),
        ("anthropic", {"stop": [5]}, "stop[0]"),
        ("gemini", {"temperature": "hot"}, "temperature"),
        ("gemini", {"thinking": 5}, "thinking"),
    ],
)
async def test_each_field_of_a_wrong_form_is_named(
    world: Installation, vendor: str, body: dict[str, Any], param: str
) -> None:
    model, request_count = await add_model(world, vendor, "plain"), len(world.fake.requests)
    refusal = await world.chat(model, **body)
    assert refusal.status_code == 400, refusal.text
    assert (refusal.json()["error"]["code"], refusal.json()["error"]["param"]) == ("invalid_request", param)
    assert len(world.fake.requests) == request_count


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(
    ("name", "answer", "status", "says"),
    [
        ("refuses", CannedAnswer(json.dumps({"error": {"message": "No roses here"}}).encode(), 400), 400, "No roses"),
        ("breaks", CannedAnswer(b"{"), 502, "The model's provider"),
    ],
)
async def test_what_is_sent_is_answered_as_the_provider_has_it(
    world: Installation, vendor: str, name: str, answer: CannedAnswer, status: int, says: str
) -> None:
    world.fake.canned_answers[name] = answer
    model, request_count = await add_model(world, vendor, f"said:{name}"), len(world.fake.requests)
    # The translation takes these fields, although their form is wrong.
    odd = {"seed": "x"} if vendor == "gemini" else {"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]}
    refusal = await world.chat(model, **odd)
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (status, None)
    assert says in refusal.json()["error"]["message"]
    assert len(world.fake.requests) == request_count + 1
