"""The wire format of OpenAI's Responses API."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic_core import to_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.reasoning import is_sealed
from baobab.runtime.gateway.refusal import build_refusal
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires import responses_answer, responses_request

_STATUSES = {
    "rate_limit_exceeded": 429,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "insufficient_quota": 429,
    "invalid_request_error": 400,
}
_THOUGHTS = "reasoning.encrypted_content"


class ResponsesWire:
    """OpenAI's Responses API. headers: the caller's headers for the vendor."""

    path = "/responses"
    limit = "max_output_tokens"
    provider = "openai"
    headers: Mapping[str, str] = MappingProxyType({})
    notable_pattern = re.compile(
        rb'"type"\s*:\s*"(?:error|response\.(?:completed|incomplete|failed))"|"error"\s*+:(?!\s*+null)'
    )
    build_chat_request = staticmethod(responses_request.build_chat_request)
    render_answer = staticmethod(responses_answer.render_answer)
    render_events = staticmethod(responses_answer.render_events)

    def build_relay_request(self, body: Mapping[str, Any], model: Model) -> dict[str, Any]:
        """Builds the request with `store` off: everybody who calls with the same key would share what is stored.

        The reasoning is returned encrypted instead, so that the caller can send it back with the next request.
        """
        request = {**body, "store": False}
        if isinstance(input_ := body.get("input"), list):
            request["input"] = [item for item in input_ if not _is_foreign_reasoning(item)]
        included_names = body.get("include")
        if "reasoning" in model.features and (included_names is None or isinstance(included_names, list)):
            request["include"] = [*(name for name in included_names or () if name != _THOUGHTS), _THOUGHTS]
        return request

    def build_parser(self, meter: UsageMeter) -> "_StreamParser":
        return _StreamParser(meter)

    def check_answer(self, answer: Mapping[str, Any]) -> None:
        if answer.get("status") == "failed" or answer.get("error"):
            raise _build_failure(answer.get("error"))
        if not isinstance(answer.get("output"), list):
            raise UpstreamMalformed


class _StreamParser:
    def __init__(self, meter: UsageMeter) -> None:
        self._outcome = meter

    def __call__(self, event: Mapping[str, Any]) -> bool:
        kind = event.get("type")
        if kind == "error" or event.get("error"):
            raise _build_failure(event.get("error") or event)
        if kind not in ("response.completed", "response.incomplete", "response.failed"):
            return False
        response = event.get("response")
        response = response if isinstance(response, dict) else {}
        self._outcome.count_usage(response.get("usage"))
        if kind == "response.failed":
            raise _build_failure(response.get("error"))
        return True


def _is_foreign_reasoning(item: Any) -> bool:
    """Returns whether an item is reasoning that OpenAI has not encrypted, which it would refuse."""
    is_reasoning = isinstance(item, dict) and item.get("type") == "reasoning"
    return is_reasoning and (not item.get("encrypted_content") or is_sealed(item["encrypted_content"]))


def _build_failure(error: Any) -> Exception:
    """Builds the error that the provider reports inside an answer, by its code."""
    error = error if isinstance(error, dict) else {}
    status = _STATUSES.get(str(error.get("code"))) or _STATUSES.get(str(error.get("type")), 500)
    return build_refusal(status, to_json({"error": error}), None)


RESPONSES = ResponsesWire()
