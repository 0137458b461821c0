"""Anthropic's Messages."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.outcome import Outcome
from baobab.runtime.gateway.refusal import refusal
from baobab.runtime.gateway.wires import messages_answer, messages_request

_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "timeout_error": 504,
}


class Messages:
    """headers: what the caller says to the vendor beside the request."""

    path = "/messages"
    limit = "max_tokens"
    provider = "anthropic"
    notable = re.compile(rb'"type"\s*:\s*"(?:message_start|message_delta|message_stop|error)"|"error"\s*+:(?!\s*+null)')
    asked = staticmethod(messages_request.asked)
    answered = staticmethod(messages_answer.answered)
    telling = staticmethod(messages_answer.telling)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers

    def relayed(self, body: Mapping[str, Any], model: Model) -> dict[str, Any]:
        return dict(body)

    def hearer(self, outcome: Outcome) -> "_Hearer":
        return _Hearer(outcome)

    def check(self, answer: Mapping[str, Any]) -> None:
        _raise_told(answer)
        if not isinstance(answer.get("content"), list):
            raise UpstreamMalformed


class Counts(Messages):
    """How many tokens a request has, asked in the place of an answer."""

    path = "/messages/count_tokens"

    def check(self, answer: Mapping[str, Any]) -> None:
        _raise_told(answer)
        tokens = answer.get("input_tokens")
        if not isinstance(tokens, int) or isinstance(tokens, bool):
            raise UpstreamMalformed


class _Hearer:
    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._used: dict[str, Any] = {}

    def __call__(self, told: Mapping[str, Any]) -> bool:
        match told.get("type"):
            case "message_start":
                message = told.get("message")
                self._take(message.get("usage") if isinstance(message, dict) else None)
                self._outcome.count_prompt(self._used)
            case "message_delta":
                # Totals, of what has changed since the beginning.
                self._take(told.get("usage"))
                self._outcome.count(self._used)
        _raise_told(told)
        return told.get("type") == "message_stop"

    def _take(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._used |= {name: value for name, value in usage.items() if value is not None}


def _raise_told(told: Mapping[str, Any]) -> None:
    """What the provider says has gone wrong, by its type."""
    error = told.get("error")
    if told.get("type") == "error" or error:
        kind = error.get("type") if isinstance(error, dict) else None
        raise refusal(_STATUSES.get(str(kind), 500), to_json(told), None)
