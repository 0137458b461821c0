"""What passes whatever it is: NUL in texts, and models that no list has, for whoever brings the key."""

from typing import Any

import pytest

from tests.tools.ai.conftest import HELLO, MINI, Installation, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN_KEY = "sk-proj-customers-own-0000wxyz"
NUL = "a\x00b"


def build_body(path: str, text: str) -> dict[str, Any]:
    """A request of each wire that says this."""
    if path == "responses":
        return {"input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}
    messages = {"messages": [{"role": "user", "content": text}]}
    if path == "messages":
        return {**messages, "system": text, "max_tokens": 50}
    return {**messages, "cache": {"ttl": 60}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [MINI, "claude-haiku-4-5", "lab/plain", "baobab/echo"])
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_nul_in_a_text_passes_on_each_wire(world: Installation, path: str, model: str, stream: bool) -> None:
    world.add_model("plain")
    # Texts of their own, for an answer is cached whether it is streamed or not.
    body = {"model": model, "stream": stream, **build_body(path, f"{NUL} {stream}")}
    answer = await world.client.post(f"/v1/{path}", json=body, headers=world.owner)
    assert answer.status_code == 200, answer.text
    if model != "baobab/echo":
        assert f"a\\u0000b {stream}" in world.fake.requests[-1].body.decode()
    if path == "responses":
        response = parse_events(answer.text)[-1]["response"] if stream else answer.json()
        assert response["store"] is True
        again = {"model": model, "input": NUL, "previous_response_id": response["id"]}
        assert (await world.client.post("/v1/responses", json=again, headers=world.owner)).status_code == 200


async def test_nul_in_a_text_is_turned_into_a_vector(world: Installation) -> None:
    body = {"model": "text-embedding-3-small", "input": [NUL], "cache": {}}
    assert (await world.client.post("/v1/embeddings", json=body, headers=world.owner)).status_code == 200


async def test_what_is_no_text_to_embed_is_named_by_its_field(world: Installation) -> None:
    for wrong, param in ((True, "input"), (["a", {}], "input.1")):
        answer = await world.client.post("/v1/embeddings", json={"input": wrong}, headers=world.owner)
        assert (answer.status_code, answer.json()["error"]["param"]) in ((400, param), (400, "input"))


async def test_a_body_that_is_too_large_says_where_the_limit_is(world: Installation) -> None:
    headers = {**world.owner, "content-type": "application/json"}
    for path in ("chat/completions", "messages"):
        answer = await world.client.post(f"/v1/{path}", content=b"x" * (32 * 2**20 + 1), headers=headers)
        error = answer.json()["error"]
        assert (answer.status_code, error["max_bytes"]) == (413, 32 * 2**20)
        assert "error.max_bytes" in error["remediation"]
        assert "details." not in answer.text


@pytest.mark.parametrize(
    ("name", "provider", "sent_model"),
    [
        ("openai/ft:gpt-4o-mini:acme::1", "openai", "ft:gpt-4o-mini:acme::1"),
        ("ft:gpt-4o-mini:acme::1", "openai", "ft:gpt-4o-mini:acme::1"),
        ("openai/gpt-99", "openai", "gpt-99"),
        ("gpt-99", "openai", "gpt-99"),
        ("anthropic/claude-next-99", "anthropic", "claude-next-99"),
        ("claude-next-99", "anthropic", "claude-next-99"),
    ],
)
async def test_a_key_of_ones_own_reaches_models_that_no_list_has(
    world: Installation, name: str, provider: str, sent_model: str
) -> None:
    app_id = await world.create_app()
    arguments: dict[str, Any] = {"path": f"/v1/{app_id}", "messages": HELLO}
    assert (await world.chat(name, **arguments)).status_code == 404
    settings = {"byokKey": "sk-ant-customers-own-0000" if provider == "anthropic" else OWN_KEY}
    assert (await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)).status_code == 200
    before = await world.get_spent()
    answer = await world.chat(name, **arguments)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-baobab-model"] == f"{provider}/{sent_model}"
    assert float(answer.headers["x-baobab-cost-usd"]) == 0
    request = world.fake.requests[-1]
    assert request.json["model"] == sent_model
    assert settings["byokKey"] in (request.headers.get("authorization", "") + request.headers.get("x-api-key", ""))
    assert await world.get_spent() == before
    # Nobody else reaches it.
    assert (await world.chat(name)).status_code == 404
