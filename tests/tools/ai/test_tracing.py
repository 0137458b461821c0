"""Spans of calls to models, as a collector receives them."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from baobab.runtime.tracing import Tracing
from tests.people import get_first_organisation
from tests.runtime.gateway.upstream import start_upstream
from tests.test_observing import start_collector
from tests.tools.ai.conftest import (
    HELLO,
    LAB_KEY,
    MINI,
    TEXT,
    TIMEOUT_SECONDS,
    TOOL,
    VENDOR_KEY,
    Installation,
    open_installation,
)

SECRET = "what nobody else may read"
ASKED: Any = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": SECRET}]}


@dataclass
class TracedWorld:
    """An installation, and when it is closed, the spans of its calls to models and all that was sent."""

    world: Installation
    spans: list[Span] = field(default_factory=list)
    calls: list[Span] = field(default_factory=list)
    """Those of the calls of tools."""
    sent_bytes: bytes = b""


def parse_attributes(span: Span) -> dict[str, Any]:
    attributes = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, str(kind))
        attributes[pair.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return attributes


@contextlib.asynccontextmanager
async def open_traced(data: Path, **variables: str) -> AsyncIterator[TracedWorld]:
    with start_collector() as (url, requests):
        settings = {"BAOBAB_PLAN": "enterprise", "BAOBAB_OTEL_URL": url, **variables}
        async with open_installation(data, settings) as world:
            traced_world = TracedWorld(world)
            yield traced_world
            # A call has ended for its caller before all of it is counted.
            await world.get_settled_balance()
    for _, body in requests:
        traced_world.sent_bytes += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                traced_world.spans += [span for span in scope.spans if span.kind == Span.SPAN_KIND_CLIENT]
                traced_world.calls += [span for span in scope.spans if span.kind == Span.SPAN_KIND_SERVER]
    traced_world.spans.sort(key=lambda span: span.start_time_unix_nano)


async def test_a_call_is_a_span_by_the_conventions_for_generative_ai(tmp_path: Path) -> None:
    async with open_traced(tmp_path) as recording:
        arguments = {**ASKED, "max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "seed": 7, "n": 2}
        answer = await recording.world.chat(**arguments)
        organisation_id = await get_first_organisation(recording.world)
        port = recording.world.fake.url.rpartition(":")[2]
    (span,) = recording.spans
    assert (span.name, span.kind, span.status.code) == (f"chat {MINI}", Span.SPAN_KIND_CLIENT, Status.STATUS_CODE_UNSET)
    assert parse_attributes(span) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "server.address": "127.0.0.1",
        "server.port": int(port),
        "gen_ai.request.model": MINI,
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.seed": 7,
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.id": "chatcmpl-upstream",
        "gen_ai.response.model": "gpt-4o-mini",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "baobab.upstream.model": "gpt-4o-mini",
        "baobab.cost_usd": float(answer.headers["x-baobab-cost-usd"]),
        "baobab.organisation_id": organisation_id,
        "baobab.request_id": answer.headers["x-request-id"],
    }
    assert span.end_time_unix_nano > span.start_time_unix_nano


async def test_the_span_of_a_stream_ends_with_the_stream(tmp_path: Path) -> None:
    async with open_traced(tmp_path) as recording:
        app_id = await recording.world.create_app()
        model = recording.world.add_model("slow-tokens:0.01")
        await recording.world.chat(model, path=f"/v1/{app_id}", stream=True, **ASKED)
    (span,) = recording.spans
    attributes = parse_attributes(span)
    assert (attributes["gen_ai.request.stream"], attributes["gen_ai.provider.name"]) == (True, "lab")
    assert (attributes["gen_ai.response.id"], attributes["gen_ai.response.finish_reasons"]) == (
        "chatcmpl-upstream",
        ["stop"],
    )
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (11, 7)
    assert attributes["baobab.app_id"] == app_id
    assert attributes["baobab.cost_usd"] == pytest.approx((11 * 150 + 7 * 600) / 10**9)
    seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 10**9
    # Nine events follow the first, each after its pause.
    assert 0 < attributes["gen_ai.response.time_to_first_chunk"] < seconds - 0.05


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [("responses", {"input": SECRET}, "completed"), ("messages", {"messages": HELLO, "max_tokens": 9}, "end_turn")],
)
async def test_the_other_wires_are_spans_of_the_same_kind(
    tmp_path: Path, path: str, body: Any, reason: str, *, stream: bool
) -> None:
    async with open_traced(tmp_path) as recording:
        request_body = {"model": MINI, "stream": stream, **body}
        answer = await recording.world.client.post(f"/v1/{path}", json=request_body, headers=recording.world.owner)
        assert answer.status_code == 200, answer.text
    (span,) = recording.spans
    attributes = parse_attributes(span)
    assert (span.name, attributes["gen_ai.response.finish_reasons"]) == (f"chat {MINI}", [reason])
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (11, 7)
    assert attributes["gen_ai.response.id"]
    assert attributes.get("gen_ai.request.stream", False) is stream


async def test_embeddings_are_spans_too(tmp_path: Path) -> None:
    async with open_traced(tmp_path) as recording:
        body = {"input": ["one", "two"], "model": "text-embedding-3-small", "dimensions": 4, "encoding_format": "float"}
        answer = await recording.world.client.post("/v1/embeddings", json=body, headers=recording.world.owner)
        assert answer.status_code == 200
    (span,) = recording.spans
    attributes = parse_attributes(span)
    assert span.name == "embeddings openai/text-embedding-3-small"
    assert (attributes["gen_ai.operation.name"], attributes["gen_ai.usage.input_tokens"]) == ("embeddings", 22)
    assert (attributes["gen_ai.embeddings.dimension.count"], attributes["gen_ai.request.encoding_formats"]) == (
        4,
        ["float"],
    )
    assert "gen_ai.response.finish_reasons" not in attributes


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("behaviour", "code"), [("503", "upstream_error"), ("400", "invalid_request")])
async def test_what_fails_is_an_error_of_a_kind_and_costs_nothing(
    tmp_path: Path, behaviour: str, code: str, *, stream: bool
) -> None:
    async with open_traced(tmp_path) as recording:
        await recording.world.chat(recording.world.add_model(behaviour), stream=stream, **ASKED)
    (span,) = recording.spans
    attributes = parse_attributes(span)
    assert (span.status.code, attributes["error.type"]) == (Status.STATUS_CODE_ERROR, code)
    assert attributes["baobab.cost_usd"] == 0
    assert "gen_ai.usage.input_tokens" not in attributes
    assert "upstream_" + behaviour not in str(span)


async def test_a_stream_that_breaks_off_tells_what_came_and_why_it_ended(tmp_path: Path) -> None:
    async with open_traced(tmp_path) as recording:
        await recording.world.chat(recording.world.add_model("drop:3"), stream=True, **ASKED)
    (span,) = recording.spans
    attributes = parse_attributes(span)
    assert (span.status.code, attributes["error.type"]) == (Status.STATUS_CODE_ERROR, "upstream_malformed")
    assert attributes["gen_ai.response.finish_reasons"] == ["error"]
    assert attributes["gen_ai.usage.output_tokens"] == 3
    assert attributes["baobab.cost_usd"] > 0


async def test_a_call_whose_caller_has_left_is_a_span_that_says_so(tmp_path: Path) -> None:
    async with open_traced(tmp_path) as recording:
        world = recording.world
        body = {"model": world.add_model("slow-tokens:0.1"), "stream": True, **ASKED}
        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as http:
            url = f"{world.address}/v1/chat/completions"
            async with http.stream("POST", url, json=body, headers=world.owner) as answer:
                await anext(answer.aiter_lines())
    (span,) = recording.spans
    attributes = parse_attributes(span)
    assert attributes["baobab.left"] is True
    assert attributes["gen_ai.usage.input_tokens"] > 0
    assert span.status.code == Status.STATUS_CODE_UNSET


async def test_each_model_that_is_tried_has_its_span(tmp_path: Path) -> None:
    async with open_traced(tmp_path) as recording:
        world = recording.world
        app_id, failing_model, works = await world.create_app(), world.add_model("503"), world.add_model("works")
        put = {"fallbackModels": [works]}
        assert (await world.client.put(f"/v1/{app_id}/ai/config", json=put, headers=world.owner)).status_code == 200
        assert (await world.chat(failing_model, path=f"/v1/{app_id}", **ASKED)).status_code == 200
    assert [(span.name, parse_attributes(span).get("error.type")) for span in recording.spans] == [
        (f"chat {failing_model}", "upstream_error"),
        (f"chat {works}", None),
    ]


async def test_the_trace_tells_what_came_from_the_cache(tmp_path: Path) -> None:
    async with open_traced(tmp_path) as recording:
        for stream in (False, False, True):
            assert (await recording.world.chat(stream=stream, cache={"ttl": 60}, **ASKED)).status_code == 200
        await recording.world.chat(stream=True, cache={}, messages=HELLO)
    attributes = [parse_attributes(span) for span in recording.spans]
    assert [one["baobab.cache"] for one in attributes] == ["miss", "hit", "hit", "miss"]
    assert [one["baobab.cost_usd"] > 0 for one in attributes] == [True, False, False, True]
    # What was not used is not counted.
    assert ["gen_ai.usage.input_tokens" in one for one in attributes] == [True, False, False, True]
    assert [one["gen_ai.response.finish_reasons"] for one in attributes] == [["stop"]] * 4


@pytest.mark.parametrize("content", ["0", "1"])
async def test_prompts_and_answers_are_in_a_trace_only_where_the_operator_wants_them(
    tmp_path: Path, content: str
) -> None:
    async with open_traced(tmp_path, BAOBAB_TRACE_CONTENT=content) as recording:
        for stream in (False, True):
            await recording.world.chat(stream=stream, **ASKED)
            await recording.world.chat(recording.world.add_model("tools:1"), stream=stream, tools=[TOOL], **ASKED)
        await recording.world.client.post("/v1/embeddings", json={"input": SECRET}, headers=recording.world.owner)
    for key in (recording.world.key, VENDOR_KEY, LAB_KEY):
        assert key.encode() not in recording.sent_bytes
    if content == "0":
        for word in (SECRET, "Be brief.", TEXT, "Paris", "get_weather"):
            assert json.dumps(word)[1:-1].encode() not in recording.sent_bytes
            assert word.encode() not in recording.sent_bytes
        return
    *chats, embeddings = [parse_attributes(span) for span in recording.spans]
    for one in chats:
        assert json.loads(one["gen_ai.input.messages"]) == [
            {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
            {"role": "user", "parts": [{"type": "text", "content": SECRET}]},
        ]
    payloads = [json.loads(one["gen_ai.output.messages"]) for one in chats]
    text_message = {"role": "assistant", "parts": [{"type": "text", "content": TEXT}], "finish_reason": "stop"}
    tool_call = {"type": "tool_call", "id": "call_0", "name": "get_weather", "arguments": '{"city": "Paris"}'}
    for (message,), (calling,) in ((payloads[0], payloads[1]), (payloads[2], payloads[3])):
        assert message == text_message
        assert (calling["parts"], calling["finish_reason"]) == ([tool_call], "tool_calls")
    assert not [name for name in embeddings if "messages" in name]


async def test_a_long_conversation_is_cut_to_its_latest_messages(tmp_path: Path) -> None:
    long = [{"role": "user", "content": f"{number} " + "x" * 20_000} for number in range(50)]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    async with open_traced(tmp_path, BAOBAB_TRACE_CONTENT="1") as recording:
        messages = [*long, {"role": "user", "content": [{"type": "text", "text": "last"}, picture]}]
        assert (await recording.world.chat(messages=messages)).status_code == 200
    (span,) = recording.spans
    text = parse_attributes(span)["gen_ai.input.messages"]
    assert len(text) <= 64 * 1024
    *_, before, last = json.loads(text)
    assert before["parts"][0]["content"].startswith("49 xxx")
    assert last["parts"] == [{"type": "text", "content": "last"}, {"type": "image_url"}]


async def test_the_spans_of_a_call_are_part_of_its_callers_trace(tmp_path: Path) -> None:
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    async with open_traced(tmp_path) as recording:
        world = recording.world
        for traceparent in (f"00-{trace}-{parent}-01", f"00-{trace}-{parent}-00", "nonsense"):
            by = {**world.owner, "traceparent": traceparent}
            for stream in (False, True):
                assert (await world.chat(by=by, stream=stream, **ASKED)).status_code == 200
    # One that is not sampled is not ours to sample.
    assert len(recording.spans) == 4
    assert [(span.trace_id.hex(), span.parent_span_id.hex()) for span in recording.spans[:2]] == [(trace, parent)] * 2
    assert not [span for span in recording.spans[2:] if span.parent_span_id or span.trace_id.hex() == trace]
    calls = [span for span in recording.calls if span.trace_id.hex() == trace]
    assert [(span.name, span.parent_span_id.hex()) for span in calls] == [("gateway_chat", parent)] * 2


async def test_parameters_that_are_none_do_no_harm(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "temperature": "hot",
        "top_p": True,
        "seed": 2**70,
        "frequency_penalty": 10**400,
        "response_format": 7,
    }
    async with open_traced(tmp_path) as recording:
        assert (await recording.world.chat(**ASKED, **odd)).status_code == 200
    (span,) = recording.spans
    assert not {name for name in parse_attributes(span) if name.startswith("gen_ai.request.")} - {
        "gen_ai.request.model"
    }


async def test_what_is_no_list_of_calls_is_left_out_of_a_trace(tmp_path: Path) -> None:
    async with open_traced(tmp_path, BAOBAB_TRACE_CONTENT="1") as recording:
        messages = [{"role": "assistant", "content": "a", "tool_calls": value} for value in (1, 1.5, True, {"a": 1})]
        assert (await recording.world.chat(messages=messages)).status_code == 200
    (span,) = recording.spans
    assert json.loads(parse_attributes(span)["gen_ai.input.messages"])[0]["parts"]


@dataclass
class BrokenTracer:
    """A library of traces that fails when it is called in one way."""

    failing: str

    def start_span(self, *_: Any) -> "BrokenTracer":
        self.fail_if("start_span")
        return self

    def set_attribute(self, *_: Any, **_value: Any) -> None:
        self.fail_if("set_attribute")

    def set_attributes(self, *_: Any) -> None: ...

    def set_status(self, *_: Any) -> None: ...

    def end(self) -> None:
        self.fail_if("end")

    def fail_if(self, name: str) -> None:
        if name == self.failing:
            raise RuntimeError(name)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("failing", "cost"), [("start_span", 0), ("set_attribute", 6150), ("end", 6150)])
async def test_a_call_that_cannot_be_traced_reserves_nothing_for_longer(
    tmp_path: Path, failing: str, cost: int, *, stream: bool
) -> None:
    async with open_installation(tmp_path, {"BAOBAB_PLAN": "enterprise"}) as world:
        parts = cast(dict[type, object], world.application.services.parts)
        parts[Tracing] = Tracing(cast(Any, BrokenTracer(failing)), content=True)
        with contextlib.suppress(httpx.HTTPError):
            await world.chat(stream=stream)
        # What the provider has answered is charged.
        assert await world.get_spent() <= cost


async def test_a_collector_that_takes_nothing_is_no_matter_to_callers(tmp_path: Path) -> None:
    async with start_upstream() as nobody:
        # It knows no traces: its answer is 404.
        settings = {"BAOBAB_PLAN": "enterprise", "BAOBAB_OTEL_URL": nobody.url}
        async with open_installation(tmp_path, settings) as world:
            for stream in (False, True):
                assert (await world.chat(stream=stream)).status_code == 200
