"""`param` names the wrong field of a request, as OpenAI's clients read it."""

from typing import Any

import openai
import pytest

from tests.tools.ai.conftest import HELLO, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": "Hello!"}, "messages"),
        ({"messages": ["Hello!"]}, "messages.0"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        ({"messages": HELLO, "stream": "yes", "n": True}, "stream"),
        ({"messages": HELLO, "service_tier": "priority"}, "service_tier"),
    ],
)
@pytest.mark.parametrize("in_app", [False, True])
async def test_the_first_field_that_is_wrong_is_named(
    world: Installation, body: dict[str, Any], param: str, in_app: bool
) -> None:
    base = f"/v1/{await world.create_app()}" if in_app else "/v1"
    answer = await world.client.post(f"{base}/chat/completions", json=body, headers=world.owner)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)


async def test_a_fault_of_no_field_names_none(world: Installation) -> None:
    answer = await world.client.post("/v1/chat/completions", content=b"[", headers=world.owner)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, None)


async def test_the_official_client_tells_the_field(world: Installation) -> None:
    async with world.build_client() as client:
        with pytest.raises(openai.BadRequestError) as refusal:
            await client.chat.completions.create(model="baobab/echo", messages=HELLO, n=10**9)
    assert refusal.value.param == "n"
