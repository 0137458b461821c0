"""Traces calls to models, by OpenTelemetry's conventions for generative AI."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic_core import from_json

from baobab.runtime.gateway.completion_events import CompletionAssembler
from baobab.runtime.gateway.events import event_data
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.reason import ProviderRefusal
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.tracing import Tracing
from baobab.tools.ai.span_content import LARGEST, request_messages, response_messages
from baobab.tools.core import BaobabError, Call
from baobab.tools.core.limits.money import usd

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_OPERATIONS = {"chat": "chat", "embedding": "embeddings"}
_PROVIDERS = {
    "gemini": "gcp.gemini",
    "vertex_ai": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}
_NUMBERS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
_WHOLE_NUMBERS = {
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
    "dimensions": "gen_ai.embeddings.dimension.count",
}
_PORTS = {"http": 80}
_LARGEST_NUMBER = 2**63 - 1
_LONGEST_NAME = 200
# The events of a stream with a finish reason, in any wire format; the others need not be parsed.
_ENDS = re.compile(rb'"(?:finish_reason|stop_reason)"\s*+:\s*+"|"response\.(?:completed|incomplete|failed)"')


class ModelSpan:
    """The span of one call, which records the answer and ends once."""

    def __init__(self, span: "Span", call: Call, *, content: bool) -> None:
        self._span = span
        self._content = content
        self._now = call.services.clock.monotonic
        self._began_at = self._now()
        self._is_streamed = False
        self._reasons: dict[int, str] = {}
        self._assembler: CompletionAssembler | None = None

    def record_answer(self, answer: Any) -> None:
        """Records a whole answer, in any wire format. For a stream it does nothing."""
        if not isinstance(answer, Mapping):
            return
        self._read(answer)
        if self._content:
            self._record_content(answer)

    def record_event(self, event: bytes) -> None:
        """Records an event of a stream."""
        if not self._is_streamed:
            self._is_streamed = True
            self._span.set_attribute("gen_ai.request.stream", value=True)
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", self._now() - self._began_at)
            self._assembler = CompletionAssembler(LARGEST) if self._content else None
            self._read(_object(event))
        elif _ENDS.search(event):
            self._read(_object(event))
        if self._assembler is not None:
            self._assembler.add(event)

    def record_failure(self, error: BaseException) -> None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - only those load it who trace

        kind = error.code if isinstance(error, BaobabError) else type(error).__name__
        self._span.set_attribute("error.type", kind)
        cause = error.__cause__
        if isinstance(cause, ProviderRefusal):
            self._span.set_attribute("http.response.status_code", cause.status)
            self._span.set_status(Status(StatusCode.ERROR, cause.words))
        else:
            self._span.set_status(Status(StatusCode.ERROR))

    def record_abandoned(self) -> None:
        """Records that the caller did not wait for the end."""
        self._span.set_attribute("baobab.left", value=True)

    def end(self, meter: UsageMeter, cost: int) -> None:
        """Records the usage and ends the span. cost: the charge in nano-dollars."""
        attributes: dict[str, Any] = {"baobab.cost_usd": usd(cost)}
        if meter.served_model is not None:
            attributes["gen_ai.provider.name"] = _provider(meter.served_model)
            attributes["baobab.upstream.model"] = meter.served_model.upstream_name[:_LONGEST_NAME]
        address = urlsplit(meter.api_base)
        if address.hostname:
            attributes |= {
                "server.address": address.hostname,
                "server.port": address.port or _PORTS.get(address.scheme, 443),
            }
        if meter.has_begun:
            attributes["gen_ai.usage.input_tokens"] = meter.prompt
            attributes["gen_ai.usage.output_tokens"] = meter.completion
            detail_counts = {
                "cache_read.input_tokens": meter.cached,
                "cache_write.input_tokens": meter.cache_write + meter.cache_write_hour,
                "reasoning.output_tokens": meter.reasoning,
            }
            attributes |= {f"gen_ai.usage.{name}": tokens for name, tokens in detail_counts.items() if tokens}
        if self._is_streamed and not self._reasons:
            # The conventions' value for a missing end.
            self._reasons[0] = "error"
        if self._reasons:
            attributes["gen_ai.response.finish_reasons"] = [reason for _, reason in sorted(self._reasons.items())]
        if self._assembler is not None:
            completion = self._assembler.build_completion(meter)
            if completion is not None:
                self._record_content(completion)
        self._span.set_attributes(attributes)
        self._span.end()

    def record_cache_hit(self, answer: Mapping[str, Any]) -> None:
        """Records an answer from the cache and ends the span."""
        self.record_answer(answer)
        self._span.set_attributes({"baobab.cache": "hit", "baobab.cost_usd": 0.0})
        if self._reasons:
            reasons = [reason for _, reason in sorted(self._reasons.items())]
            self._span.set_attribute("gen_ai.response.finish_reasons", reasons)
        self._span.end()

    def _read(self, payload: Mapping[str, Any]) -> None:
        """Records the id, model and finish reasons of an answer or an event, in any wire format."""
        inner = payload.get("response") or payload.get("message")
        if isinstance(inner, dict):
            self._read(inner)
        for name in ("id", "model"):
            if isinstance(payload.get(name), str):
                self._span.set_attribute(f"gen_ai.response.{name}", payload[name][:_LONGEST_NAME])
        choices = payload.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._record_finish(choice.get("index", 0), choice.get("finish_reason"))
        delta, details = payload.get("delta"), payload.get("incomplete_details")
        self._record_finish(
            0, payload.get("stop_reason") or (delta.get("stop_reason") if isinstance(delta, dict) else None)
        )
        if payload.get("object") == "response" and payload.get("status") in ("completed", "incomplete", "failed"):
            self._record_finish(0, details.get("reason") if isinstance(details, dict) else payload["status"])

    def _record_finish(self, index: Any, reason: Any) -> None:
        if isinstance(index, int) and isinstance(reason, str):
            self._reasons[index] = reason[:_LONGEST_NAME]

    def _record_content(self, answer: Mapping[str, Any]) -> None:
        messages = response_messages(answer)
        if messages is not None:
            self._span.set_attribute("gen_ai.output.messages", messages)


def start_span(
    call: Call, model: Model, body: Mapping[str, Any], limit: int | None, *, cache: str = ""
) -> ModelSpan | None:
    """Starts the span of a call; returns None if nothing is traced.

    body, limit: the request, and the most tokens of its answer. cache: the state of the response cache.
    """
    tracing = call.services.parts.get(Tracing)
    operation = _OPERATIONS.get(model.modality)
    if not isinstance(tracing, Tracing) or operation is None:
        return None
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _provider(model),
        "gen_ai.request.model": model.id,
        "baobab.request_id": call.context.request_id,
        **_request_attributes(body, limit),
    }
    if call.app is not None:
        attributes |= {"baobab.app_id": call.app.id, "baobab.organisation_id": call.app.organisation_id}
    else:
        attributes["baobab.organisation_id"] = getattr(call.caller, "organisation_id", "")
    if cache:
        attributes["baobab.cache"] = cache
    if tracing.content and operation == "chat":
        messages = request_messages(body)
        attributes |= {} if messages is None else {"gen_ai.input.messages": messages}
    return ModelSpan(
        tracing.start_span(f"{operation} {model.id}", attributes, call.context.trace), call, content=tracing.content
    )


def _request_attributes(body: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """Collects the parameters of a request. Values of a wrong type are left out; the provider will refuse them."""
    attributes: dict[str, Any] = {"gen_ai.request.max_tokens": limit} if limit else {}
    for name, key in _NUMBERS.items():
        value = body.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST_NUMBER:
            attributes[key] = float(value)
    for name, key in _WHOLE_NUMBERS.items():
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_NUMBER:
            attributes[key] = value
    if attributes.get("gen_ai.request.choice.count") == 1:
        del attributes["gen_ai.request.choice.count"]
    effort, encoding = body.get("reasoning_effort"), body.get("encoding_format")
    if isinstance(effort, str):
        attributes["gen_ai.request.reasoning.level"] = effort[:_LONGEST_NAME]
    if isinstance(encoding, str):
        attributes["gen_ai.request.encoding_formats"] = [encoding[:_LONGEST_NAME]]
    response_format = body.get("response_format")
    if isinstance(response_format, dict):
        attributes["gen_ai.output.type"] = "text" if response_format.get("type") == "text" else "json"
    return attributes


def _provider(model: Model) -> str:
    # The id of a customer's own server, after the colon, is left out, because there may be any number of them.
    return _PROVIDERS.get(model.provider, model.provider.partition(":")[0])


def _object(event: bytes) -> dict[str, Any]:
    try:
        payload = from_json(event_data(event) or b"{}")
    except ValueError:
        return {}
    return payload if isinstance(payload, dict) else {}
