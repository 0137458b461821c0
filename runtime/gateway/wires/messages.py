"""The wire format of Anthropic's Messages API."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.reasoning import is_sealed
from baobab.runtime.gateway.refusal import build_refusal
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires import messages_answer, messages_request

_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "timeout_error": 504,
}


class MessagesWire:
    """Anthropic's Messages API. headers: the caller's headers for the vendor."""

    path = "/messages"
    limit = "max_tokens"
    provider = "anthropic"
    notable_pattern = re.compile(
        rb'"type"\s*:\s*"(?:message_start|message_delta|message_stop|error)"|"error"\s*+:(?!\s*+null)'
    )
    build_chat_request = staticmethod(messages_request.build_chat_request)
    render_answer = staticmethod(messages_answer.render_answer)
    render_events = staticmethod(messages_answer.render_events)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers

    def build_relay_request(self, body: Mapping[str, Any], model: Model) -> dict[str, Any]:
        """Builds the request without thoughts that other providers gave: Anthropic would refuse them."""
        return {**body, "messages": [_drop_foreign_thoughts(message) for message in body["messages"]]}

    def build_parser(self, meter: UsageMeter) -> "_StreamParser":
        return _StreamParser(meter)

    def check_answer(self, answer: Mapping[str, Any]) -> None:
        _raise_reported_error(answer)
        if not isinstance(answer.get("content"), list):
            raise UpstreamMalformed


class TokenCountWire(MessagesWire):
    """Anthropic's API that counts the tokens of a request."""

    path = "/messages/count_tokens"

    def check_answer(self, answer: Mapping[str, Any]) -> None:
        _raise_reported_error(answer)
        tokens = answer.get("input_tokens")
        if not isinstance(tokens, int) or isinstance(tokens, bool):
            raise UpstreamMalformed


class _StreamParser:
    def __init__(self, meter: UsageMeter) -> None:
        self._outcome = meter
        self._usage: dict[str, Any] = {}

    def __call__(self, event: Mapping[str, Any]) -> bool:
        match event.get("type"):
            case "message_start":
                message = event.get("message")
                self._merge_usage(message.get("usage") if isinstance(message, dict) else None)
                self._outcome.count_prompt(self._usage)
            case "message_delta":
                # Totals of the counts that have changed since the beginning.
                self._merge_usage(event.get("usage"))
                self._outcome.count_usage(self._usage)
        _raise_reported_error(event)
        return event.get("type") == "message_stop"

    def _merge_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}


def _drop_foreign_thoughts(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not any(map(_is_foreign_thought, content)):
        return message
    return {**message, "content": [block for block in content if not _is_foreign_thought(block)]}


def _is_foreign_thought(block: Any) -> bool:
    """Returns whether a block is a thought that Anthropic has not signed."""
    if not isinstance(block, dict):
        return False
    if block.get("type") == "redacted_thinking":
        return is_sealed(block.get("data"))
    return block.get("type") == "thinking" and (not block.get("signature") or is_sealed(block["signature"]))


def _raise_reported_error(payload: Mapping[str, Any]) -> None:
    """Raises the error that the provider reports, if there is one, by its type."""
    error = payload.get("error")
    if payload.get("type") == "error" or error:
        kind = error.get("type") if isinstance(error, dict) else None
        raise build_refusal(_STATUSES.get(str(kind), 500), to_json(payload), None)
