"""Items of stored responses that requests refer to, as the Vercel AI SDK and OpenAI's clients do by default."""

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select

from baobab.runtime.gateway.gateway import Gateway
from baobab.tools.ai.tables import response_cache
from tests.people import create_person
from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import MINI, TEXT, Installation, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

HI = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
AGAIN = {"role": "user", "content": [{"type": "input_text", "text": "again"}]}
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


async def post_response(world: Installation, base: str = "/v1", by: Any = None, **body: Any) -> Any:
    return await world.client.post(f"{base}/responses", json=body, headers=by or world.owner)


async def fetch_response(world: Installation, stream: bool = False, **body: Any) -> dict[str, Any]:
    answer = await post_response(world, stream=stream, **body)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = parse_events(answer.text)[-1]["response"] if stream else answer.json()
    return response


def item_reference(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "item_reference", "id": item["id"]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [MINI, "lab/plain", "baobab/echo"])
async def test_a_second_turn_refers_to_the_first(world: Installation, model: str, stream: bool) -> None:
    world.add_model("plain")
    first = await fetch_response(world, stream, model=model, input=[HI])
    assert first["store"] is True
    turns = [HI, *map(item_reference, first["output"]), AGAIN]
    second = await fetch_response(world, stream, model=model, input=turns)
    third = await fetch_response(world, model=model, input=[*turns, *map(item_reference, second["output"]), HI])
    assert third["status"] == "completed"
    sent_body = {} if model == "baobab/echo" else world.fake.requests[-1].json
    if model == MINI:
        assert sent_body["input"] == [HI, *first["output"], AGAIN, *second["output"], HI]
    elif model == "lab/plain":
        roles = [message["role"] for message in sent_body["messages"]]
        assert roles == ["user", "assistant", "user", "assistant", "user"]
        assert sent_body["messages"][1]["content"] == TEXT
    # What went before is stored with it: it can be gone on with by its id, too.
    assert (await fetch_response(world, model=model, input="More.", previous_response_id=third["id"]))["store"] is True


@pytest.mark.parametrize("server", ["openai", "lab"])
async def test_a_loop_of_tools_refers_to_its_calls(world: Installation, server: str) -> None:
    model = world.add_model("tools:2", server=server)
    first = await fetch_response(world, model=model, input=[HI], tools=[WEATHER])
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "rain"} for call in calls]
    last = await fetch_response(world, model=model, input=[HI, *map(item_reference, calls), *results], tools=[WEATHER])
    assert last["output"][-1]["content"][0]["text"] == TEXT


async def test_thoughts_are_sent_again_where_they_are_sealed(world: Installation) -> None:
    model = world.add_model("said:thinking", server="openai")
    gateway = world.application.services.part(Gateway)
    gateway.catalogue.register_models("openai", [replace(gateway.get_model(model), features=frozenset(("reasoning",)))])
    sealed_item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    plain = {"type": "reasoning", "id": "rs_2", "summary": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
    output = [sealed_item, plain, message]
    answer = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": output}
    world.fake.canned_answers["thinking"] = CannedAnswer(json.dumps(answer).encode())
    first = await fetch_response(world, model=model, input=[HI])
    assert first["output"] == output
    # The type may be left out.
    references = [item_reference(sealed_item), item_reference(plain), {"id": "msg_1"}]
    await fetch_response(world, model=model, input=[HI, *references, AGAIN])
    assert world.fake.requests[-1].json["input"] == [HI, sealed_item, message, AGAIN]


async def test_what_is_not_stored_cannot_be_referred_to(world: Installation) -> None:
    first = await fetch_response(world, model="baobab/echo", input=[HI], store=False)
    assert first["store"] is False
    request_count = len(world.fake.requests)
    items: list[Any] = [first["output"][0], {"id": "msg_nobodys"}, {"id": 1}, {"id": []}, {"id": {"a": 1}}]
    for item in items:
        refusal = await post_response(world, model=MINI, input=[HI, item_reference(item)])
        error = refusal.json()["error"]
        assert (refusal.status_code, error["code"], error["param"]) == (404, "item_not_found", "input[1]")
        assert error["type"] == "invalid_request_error"
    assert len(world.fake.requests) == request_count


async def test_nobody_else_refers_to_an_item_or_reads_its_response(world: Installation) -> None:
    app_id = await world.create_app()
    base, ada, bob = f"/v1/{app_id}", await world.user_headers(app_id, "ada"), await world.user_headers(app_id, "bob")
    stranger = (await create_person(world, "stranger")).headers
    body = (await post_response(world, base, ada, model="baobab/echo", input=[HI])).json()
    again: Any = {"model": "baobab/echo", "input": [HI, item_reference(body["output"][0]), AGAIN]}
    assert (await post_response(world, base, ada, **again)).status_code == 200
    read = await world.client.get(f"{base}/responses/{body['id']}", headers=ada)
    assert (read.status_code, read.json()["output"]) == (200, body["output"])
    for where, who in ((base, bob), (base, world.owner), ("/v1", world.owner), ("/v1", stranger)):
        assert (await post_response(world, where, who, **again)).status_code == 404
        for method in ("GET", "DELETE"):
            answer = await world.client.request(method, f"{where}/responses/{body['id']}", headers=who)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found")
    response = await world.client.delete(f"{base}/responses/{body['id']}", headers=ada)
    assert response.json()["deleted"] is True
    assert (await post_response(world, base, ada, **again)).status_code == 404


async def test_items_go_with_their_response(world: Installation) -> None:
    app_id = await world.create_app()
    rows = select(func.count()).select_from(response_cache)

    async def count() -> int:
        async with world.application.services.database.reading() as connection:
            return int((await connection.execute(rows)).scalar() or 0)

    before = await count()
    body = (await post_response(world, f"/v1/{app_id}", model="baobab/echo", input="one")).json()
    await post_response(world, f"/v1/{app_id}", model="baobab/echo", input="two")
    assert await count() == before + 4
    await world.client.delete(f"/v1/{app_id}/responses/{body['id']}", headers=world.owner)
    assert await count() == before + 2
