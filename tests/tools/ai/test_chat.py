"""Chat completions in one piece: what reaches the provider, what comes back, and what does not."""

import json
from typing import Any

import httpx
import pytest

from baobab.tools.accounts.first_account import first_account
from baobab.tools.core.auth.callers import ScopedKey
from baobab.tools.core.context import RequestContext
from tests.people import create_key, get_first_organisation
from tests.tools.ai.conftest import HELLO, LAB_KEY, MINI, TEXT, TIMEOUT_SECONDS, TOOL, VENDOR_KEY, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Everything that a provider is sent about the request, beside its body.
SENT = {"host", "content-type", "content-length", "accept", "accept-encoding", "authorization", "user-agent"}


async def test_an_answer_is_the_providers_own(world: Installation) -> None:
    answer = await world.chat(temperature=0)
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as direct:
        theirs = await direct.post(f"{world.fake.url}/v1/chat/completions", content=world.fake.requests[-1].body)
    assert answer.status_code == 200
    assert answer.json() == theirs.json()
    assert answer.json()["choices"][0]["message"]["content"] == TEXT


async def test_an_answer_says_which_model_it_was_what_it_cost_and_which_request(world: Installation) -> None:
    headers = (await world.chat("gpt-4o-mini")).headers
    assert headers["x-baobab-model"] == MINI
    assert headers["x-baobab-cost-usd"] == "0.000005850"
    assert headers["x-request-id"].startswith("req_")


async def test_fields_that_nobody_here_knows_reach_the_provider(world: Installation) -> None:
    further: dict[str, Any] = {
        "reasoning_effort": "low",
        "metadata": {"a": [1, None, 2.5]},
        "user": "somebody",
        "future_field": {"x": 1},
    }
    await world.chat(max_tokens=7, **further)
    sent_body = world.fake.requests[-1].json
    assert sent_body == {"messages": HELLO, "model": "gpt-4o-mini", "max_tokens": 7, **further}


async def test_an_answer_in_one_piece_is_asked_for_without_a_streams_options(world: Installation) -> None:
    answer = await world.chat(stream=False, stream_options={"include_usage": True})
    assert answer.status_code == 200
    assert not {"stream", "stream_options"} & world.fake.requests[-1].json.keys()


async def test_messages_are_passed_on_as_they_are(world: Installation) -> None:
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {}}]},
        {"role": "tool", "tool_call_id": "1", "content": "ünï ☃"},
    ]
    await world.chat(messages=messages)
    assert world.fake.requests[-1].json["messages"] == messages


async def test_a_provider_learns_nothing_of_the_caller(world: Installation) -> None:
    app_id = await world.create_app()
    await world.chat(path=f"/v1/{app_id}", by={**world.owner, "cookie": "a=b", "x-forwarded-for": "198.51.100.7"})
    request = world.fake.requests[-1]
    assert {name.lower() for name in request.headers} <= SENT
    assert request.headers["authorization"] == f"Bearer {VENDOR_KEY}"
    request_bytes = repr(request.headers).encode() + request.body
    for secret in (world.key, app_id, await get_first_organisation(world), "198.51.100.7"):
        assert secret.encode() not in request_bytes


@pytest.mark.parametrize(
    ("behaviour", "status", "type_", "code"),
    [
        ("400", 400, "invalid_request_error", "invalid_request"),
        ("401", 502, "api_error", "upstream_denied"),
        ("403", 502, "api_error", "upstream_denied"),
        ("404", 404, "invalid_request_error", "model_not_found"),
        ("408", 504, "api_error", "upstream_timeout"),
        ("422", 400, "invalid_request_error", "invalid_request"),
        ("429:17", 429, "rate_limit_error", "rate_limit_exceeded"),
        ("500", 502, "api_error", "upstream_error"),
        ("503", 502, "api_error", "upstream_error"),
        ("529", 502, "api_error", "upstream_error"),
        ("context", 400, "invalid_request_error", "context_length_exceeded"),
        ("html", 502, "api_error", "upstream_error"),
        ("redirect", 502, "api_error", "upstream_error"),
        ("drop-first", 502, "api_error", "upstream_error"),
        ("drop", 502, "api_error", "upstream_malformed"),
        ("malformed-json", 502, "api_error", "upstream_malformed"),
        ("shapeless", 502, "api_error", "upstream_malformed"),
        ("error-body", 502, "api_error", "upstream_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_provider_refuses_is_said_in_our_words_and_costs_nothing(
    world: Installation, behaviour: str, status: int, type_: str, code: str, *, stream: bool
) -> None:
    if stream and behaviour in {"drop", "malformed-json", "shapeless", "error-body"}:
        # These begin to answer, and are told of in test_streaming.
        behaviour = "500"
        status, type_, code = 502, "api_error", "upstream_error"
    before = await world.get_spent()
    answer = await world.chat(world.add_model(behaviour), stream=stream)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (status, type_, code)
    assert answer.headers["x-request-id"]
    assert answer.headers.get("retry-after") == {"429:17": "17", "503": "1"}.get(behaviour)
    answer_text = repr(answer.headers) + answer.text
    for theirs in (LAB_KEY, world.fake.url.partition("//")[2], "The upstream failed", "html", "169.254"):
        assert theirs not in answer_text
    assert await world.get_spent() == before


async def test_an_error_of_the_app_routes_is_the_same(world: Installation) -> None:
    app_id = await world.create_app()
    answer = await world.chat(world.add_model("429:3"), path=f"/v1/{app_id}")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"


async def test_what_may_have_been_chance_is_tried_again(world: Installation) -> None:
    request_count = len(world.fake.requests)
    assert (await world.chat(world.add_model("flaky:2"))).status_code == 200
    assert len(world.fake.requests) == request_count + 3


@pytest.mark.parametrize(("behaviour", "times"), [("500:9", 3), ("400:9", 1), ("401:9", 1), ("429:9", 1)])
async def test_what_is_no_chance_is_not_tried_again(world: Installation, behaviour: str, times: int) -> None:
    request_count = len(world.fake.requests)
    assert (await world.chat(world.add_model(behaviour))).status_code >= 400
    assert len(world.fake.requests) == request_count + times


async def test_a_provider_that_nobody_reaches_is_an_upstream_error(world: Installation) -> None:
    nowhere = world.add_model("gone", server="gone", url="http://127.0.0.1:9")
    answer = await world.chat(nowhere)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")
    assert "127.0.0.1" not in answer.text


async def test_a_huge_answer_arrives_whole(world: Installation) -> None:
    answer = await world.chat(world.add_model("huge:3000000"))
    assert answer.json()["choices"][0]["message"]["content"] == "x" * 3_000_000


async def test_without_a_model_a_small_one_of_a_provider_that_is_there_answers(world: Installation) -> None:
    assert (await world.chat(None)).headers["x-baobab-model"] == MINI


async def test_a_model_is_found_by_its_vendors_name_too(world: Installation) -> None:
    assert (await world.chat("GPT-4o-mini")).headers["x-baobab-model"] == MINI


@pytest.mark.parametrize(
    ("path", "model", "status", "code", "message"),
    [
        ("chat/completions", "no/such-model", 404, "model_not_found", "no/such-model"),
        ("chat/completions", "lab/film", 400, "USE_VIDEO_ENDPOINT", "/videos/completions"),
        ("chat/completions", "openai/text-embedding-3-small", 400, "WRONG_MODALITY", "embedding"),
        ("embeddings", MINI, 400, "WRONG_MODALITY", "chat"),
        ("embeddings", "no/such-model", 404, "model_not_found", "no/such-model"),
    ],
)
async def test_a_model_that_is_not_for_this_is_refused(
    world: Installation, path: str, model: str, status: int, code: str, message: str
) -> None:
    world.add_model("film", modality="video")
    app_id = await world.create_app()
    body = {"model": model, "messages": HELLO} if "chat" in path else {"model": model, "input": "Hello!"}
    for base in ("/v1", f"/v1/{app_id}"):
        answer = await world.client.post(f"{base}/{path}", json=body, headers=world.owner)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["code"]) == (status, "invalid_request_error", code)
        assert message in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hello!"}, "messages"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        ({"messages": HELLO, "max_tokens": "many"}, "max_tokens"),
        ({"messages": HELLO, "max_completion_tokens": -1}, "max_completion_tokens"),
        ({"messages": HELLO, "max_completion_tokens": 10**30}, "max_completion_tokens"),
        ({"messages": HELLO, "n": 10**9}, "n"),
        ({"messages": HELLO, "n": True}, "n"),
        ({"messages": HELLO, "stream": "yes"}, "stream"),
        ({"messages": HELLO, "service_tier": "priority"}, "service_tier"),
        ({"messages": HELLO, "search_parameters": {"mode": "on"}}, "search_parameters"),
        ({"messages": HELLO, "models": ["openai/gpt-5"]}, "models"),
        ({"messages": HELLO, "route": "fallback"}, "route"),
        ({"messages": HELLO, "plugins": [{"id": "web"}]}, "plugins"),
        ({"messages": HELLO, "provider": {"order": ["azure"]}}, "provider"),
        ({"messages": HELLO, "generationConfig": {"candidateCount": 8}}, "generationConfig"),
        ({"messages": HELLO, "tools": [TOOL, {"type": "code_interpreter"}]}, "tools[1]"),
        ({"messages": HELLO, "tools": [{"googleSearch": {}}]}, "tools"),
        ({"messages": HELLO, "tools": [{"type": {}}]}, "tools"),
        ({}, "messages"),
    ],
)
async def test_a_request_that_is_wrong_is_refused_before_anybody_is_asked(
    world: Installation, body: Any, param: str
) -> None:
    request_count = len(world.fake.requests)
    answer = await world.client.post("/v1/chat/completions", json=body, headers=world.owner)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert param in json.dumps(error)
    assert len(world.fake.requests) == request_count


async def test_callers_without_a_credential_or_the_scope_are_told_so(world: Installation) -> None:
    narrow = await create_key(world, scopes=["substrate"])
    for by, status, type_, code in (
        ({"x-nothing": ""}, 401, "authentication_error", "missing_credentials"),
        ({"authorization": "Bearer bb_sk_" + "x" * 40}, 401, "authentication_error", "invalid_api_key"),
        ({"authorization": "Bearer eyJ.not.one"}, 401, "authentication_error", "invalid_api_key"),
        (narrow, 403, "permission_error", "insufficient_scope"),
    ):
        answer = await world.chat(by=by)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["code"]) == (status, type_, code)


async def test_a_key_for_the_gateway_opens_the_gateway_and_nothing_else(world: Installation) -> None:
    app_id = await world.create_app()
    narrow = await create_key(world, scopes=["ai:gateway"])
    assert (await world.chat(by=narrow)).status_code == 200
    embedding = {"input": "Hello!", "model": "text-embedding-3-small"}
    assert (await world.client.post("/v1/embeddings", json=embedding, headers=narrow)).status_code == 200
    assert (await world.client.get("/v1/models", headers=narrow)).status_code == 200
    assert (await world.chat(by=narrow, path=f"/v1/{app_id}")).status_code == 403
    for path in (f"/v1/{app_id}/ai/config", f"/v1/{app_id}/ai/usage", f"/v1/{app_id}/ai/models", "/apps", "/api-keys"):
        assert (await world.client.get(path, headers=narrow)).status_code == 403, path


async def test_a_door_that_cannot_stream_gets_the_answer_in_one_piece(world: Installation) -> None:
    owner = await first_account(world.application.services)
    caller = ScopedKey(owner.account_id, owner.organisation_id, "a key", frozenset(("ai:gateway",)))
    arguments = {"messages": HELLO, "model": MINI, "stream": True, "tools": [TOOL]}
    answer = await world.application.registry.call("gateway_chat", arguments, caller, RequestContext("test", "1"))
    assert answer["choices"][0]["message"]["content"] == TEXT
