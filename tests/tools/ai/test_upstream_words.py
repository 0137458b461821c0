"""What a provider says of its failures, in whichever field, reaches nobody: it may hold keys, hosts and names."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.providers import Provider
from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import HELLO, LAB_KEY, OTHER_KEY, VENDOR_KEY, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST, IP, ORGANISATION, GROUP = "models.internal.example.com", "10.31.7.9", "org-Acme17", "azure-eu-blue"
SECRETS = (LAB_KEY, VENDOR_KEY, OTHER_KEY, HOST, IP, ORGANISATION, GROUP)
# By what each is asked, and of which server; `translated` is by LiteLLM.
WIRES: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": ("/v1/chat/completions", {"messages": HELLO}, "lab"),
    "translated chat": ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 9}, "google"),
    "responses": ("/v1/responses", {"input": [{"role": "user", "content": "Hello!"}], "store": False}, "openai"),
    "translated responses": ("/v1/responses", {"input": "Hello!", "store": False}, "lab"),
    "messages": ("/v1/messages", {"messages": HELLO, "max_tokens": 9}, "anthropic"),
    "translated messages": ("/v1/messages", {"messages": HELLO, "max_tokens": 9}, "lab"),
    "counts": ("/v1/messages/count_tokens", {"messages": HELLO}, "anthropic"),
    "embeddings": ("/v1/embeddings", {"input": "Hello!"}, "vectors"),
}
SPOKEN = {"lab": "chat", "google": "google", "anthropic": "messages", "openai": "responses"}
STREAMED = [name for name in WIRES if name not in ("counts", "embeddings")]

secrets = st.sampled_from(SECRETS)
words = st.one_of(
    secrets,
    st.builds("{} {}: no deployment {}".format, st.sampled_from(("At", "In", "By")), secrets, secrets),
    st.builds("messages[0].{}".format, secrets),
    st.builds("{}.messages".format, secrets),
    st.builds("https://{}/v1?key={}".format, secrets, secrets),
    st.sampled_from(("messages", "invalid_request_error", "context_length_exceeded", "rate_limit_error", "error")),
)
fields = st.sampled_from(
    ("message", "code", "type", "param", "status", "detail", "metadata", "errors", "request_id", "url", *SECRETS)
)
values = st.recursive(
    st.one_of(words, st.none(), st.booleans(), st.integers(390, 600)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(fields, inner, max_size=4)),
    max_leaves=8,
)
errors = st.one_of(st.dictionaries(fields, values, min_size=1, max_size=6), words)
bodies = st.builds(
    lambda error, beside: {**beside, "error": error}, errors, st.dictionaries(fields, values, max_size=3)
)
headers = st.dictionaries(
    st.sampled_from(
        ("x-request-id", "openai-organization", "server", "via", "location", "retry-after", "set-cookie", "warning")
    ),
    words,
    max_size=4,
)
statuses = st.sampled_from((200, 301, 400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529))
# A first event of each wire, with which an answer begins that fails.
BEGUN = {
    "chat": b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "Hello"}}]}\n\n',
    "messages": b'event: message_start\ndata: {"type": "message_start", "message": {"id": "1", "content": []}}\n\n',
    "google": b'data: {"candidates": [{"content": {"parts": [{"text": "Hello"}], "role": "model"}}]}\n\n',
    "responses": b'event: response.created\ndata: {"type": "response.created", "response": {"id": "1"}}\n\n',
}
# Each failure is tried again after a pause, so many are made at once; one example is four of them on each wire.
quick = settings(max_examples=5)


async def ask_provider(
    world: Installation, wire: str, canned_answer: CannedAnswer, name: str = "", **further: Any
) -> Any:
    path, body, server = WIRES[wire]
    behaviour = f"said:{wire}{name}"
    world.fake.canned_answers[behaviour.partition(":")[2]] = canned_answer
    if server == "google":
        model = add_google_model(world, behaviour)
    elif server == "vectors":
        model = world.add_model(behaviour, modality="embedding")
    else:
        model = world.add_model(behaviour, server=server)
    return await world.client.post(path, json={"model": model, **body, **further}, headers=world.owner)


def add_google_model(world: Installation, behaviour: str) -> str:
    gateway = world.application.services.part(Gateway)
    base_model = gateway.get_model(world.add_model("plain"))
    model = replace(base_model, id=f"googles/{behaviour}", litellm=f"gemini/{behaviour}", provider="gemini")
    gateway.add_provider(Provider("gemini", world.fake.url, OTHER_KEY, "translated"), [model])
    return model.id


def find_secrets(world: Installation, answer: Any) -> list[str]:
    answer_text = f"{answer.headers} {answer.text}".lower().replace("\\/", "/")
    return [secret for secret in (*SECRETS, world.fake.url.partition("//")[2]) if secret.lower() in answer_text]


@quick
@given(failures=st.lists(st.tuples(bodies, statuses, headers), min_size=4, max_size=4))
async def test_nothing_of_a_refusal_is_passed_on(world: Installation, failures: list[Any]) -> None:
    async def check_refused(wire: str, number: int) -> None:
        body, status, further = failures[number]
        canned_answer = CannedAnswer(json.dumps(body).encode(), status, {"content-type": "application/json", **further})
        answer = await ask_provider(world, wire, canned_answer, str(number))
        assert answer.status_code >= 400
        assert answer.json().get("error"), answer.text
        assert not find_secrets(world, answer), answer.text

    await asyncio.gather(*(check_refused(wire, number) for wire in WIRES for number in range(4)))


@quick
@given(
    failures=st.lists(st.tuples(bodies, st.booleans(), st.booleans(), words, headers), min_size=4, max_size=4),
)
async def test_nothing_of_a_failure_in_a_stream_is_passed_on(world: Installation, failures: list[Any]) -> None:
    async def check_broken(wire: str, number: int) -> None:
        body, has_beginning, is_named, remark, further = failures[number]
        client_wire = SPOKEN[WIRES[wire][2]]
        kind = {"type": "error"} if client_wire == "messages" else {}
        name = b"event: error\n" if is_named else b""
        error_event = name + b"data: " + json.dumps({**body, **kind}).encode() + b"\n\n"
        events = b": " + remark.encode() + b"\n\n" + (BEGUN[client_wire] if has_beginning else b"") + error_event
        canned_answer = CannedAnswer(events, headers={"content-type": "text/event-stream", **further})
        answer = await ask_provider(world, wire, canned_answer, str(number), stream=True)
        assert "error" in answer.text
        assert not find_secrets(world, answer), answer.text

    await asyncio.gather(*(check_broken(wire, number) for wire in STREAMED for number in range(4)))


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
async def test_an_event_that_is_called_an_error_is_one(world: Installation, wire: str) -> None:
    error_event = b'event: error\ndata: {"message": "' + HOST.encode() + b'"}\n\n'
    canned_answer = CannedAnswer(BEGUN[wire] + error_event, headers={"content-type": "text/event-stream"})
    answer = await ask_provider(world, wire, canned_answer, stream=True)
    assert '"error"' in answer.text
    assert not find_secrets(world, answer)


@pytest.mark.parametrize(
    ("theirs", "expected_param"),
    [
        ("messages", "messages"),
        ("messages[0].content", "messages[0].content"),
        ("messages.[0].content", "messages.[0].content"),
        ("messages[0].name", "messages[0]"),
        ("messages.0.role.x", "messages.0.role"),
        ("messages[7]", "messages"),
        ("messages[999999999999999999]", "messages"),
        ("model", "model"),
        (HOST, None),
        (f"{ORGANISATION}.messages", None),
        (f"messages.{GROUP}", "messages"),
        (["messages"], None),
        ("[" * 50_000, None),
    ],
)
async def test_a_parameter_at_fault_is_told_as_far_as_the_request_has_it(
    world: Installation, theirs: Any, expected_param: str | None
) -> None:
    canned_answer = CannedAnswer(json.dumps({"error": {"param": theirs, "message": HOST}}).encode(), 400)
    answer = await ask_provider(world, "chat", canned_answer)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, expected_param)
