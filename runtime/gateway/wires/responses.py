"""OpenAI's Responses."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic_core import to_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.outcome import Outcome
from baobab.runtime.gateway.refusal import refusal
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


class Responses:
    path = "/responses"
    limit = "max_output_tokens"
    provider = "openai"
    headers: Mapping[str, str] = MappingProxyType({})
    notable = re.compile(
        rb'"type"\s*:\s*"(?:error|response\.(?:completed|incomplete|failed))"|"error"\s*+:(?!\s*+null)'
    )
    asked = staticmethod(responses_request.asked)
    answered = staticmethod(responses_answer.answered)
    telling = staticmethod(responses_answer.telling)

    def relayed(self, body: Mapping[str, Any], model: Model) -> dict[str, Any]:
        """Nothing is stored: it would be among what is stored for everybody else who calls with the same key.

        Thoughts then come sealed in the answer, so that the caller can send them back with the next request.
        """
        request = {**body, "store": False}
        included = body.get("include")
        if "reasoning" in model.features and (included is None or isinstance(included, list)):
            request["include"] = [*(one for one in included or () if one != _THOUGHTS), _THOUGHTS]
        return request

    def hearer(self, outcome: Outcome) -> "_Hearer":
        return _Hearer(outcome)

    def check(self, answer: Mapping[str, Any]) -> None:
        if answer.get("status") == "failed" or answer.get("error"):
            raise _failure(answer.get("error"))
        if not isinstance(answer.get("output"), list):
            raise UpstreamMalformed


class _Hearer:
    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def __call__(self, told: Mapping[str, Any]) -> bool:
        kind = told.get("type")
        if kind == "error" or told.get("error"):
            raise _failure(told.get("error") or told)
        if kind not in ("response.completed", "response.incomplete", "response.failed"):
            return False
        response = told.get("response")
        response = response if isinstance(response, dict) else {}
        self._outcome.count(response.get("usage"))
        if kind == "response.failed":
            raise _failure(response.get("error"))
        return True


def _failure(error: Any) -> Exception:
    """What the provider says in the middle, by its code."""
    error = error if isinstance(error, dict) else {}
    status = _STATUSES.get(str(error.get("code"))) or _STATUSES.get(str(error.get("type")), 500)
    return refusal(status, to_json({"error": error}), None)


RESPONSES = Responses()
