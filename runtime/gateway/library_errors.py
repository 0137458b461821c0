"""Turns the exceptions of LiteLLM into the gateway's errors."""

import re
from collections.abc import Iterator, Mapping
from json import JSONDecodeError
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.errors import UpstreamFailed, UpstreamMalformed, UpstreamTimeout
from baobab.runtime.gateway.parameters import is_parameter
from baobab.runtime.gateway.refusal import build_refusal
from baobab.runtime.gateway.upstream import Upstream
from baobab.tools.core.errors import BaobabError

_WORD = re.compile(r"[a-z_]+")


def translate_error(
    library: Any, exc: Exception, body: Mapping[str, Any] | None = None, upstream: Upstream | None = None
) -> BaobabError:
    """Turns an exception of the library into one of the gateway's errors."""
    kinds = library.exceptions
    if isinstance(exc, kinds.UnsupportedParamsError):
        return _build_unsupported_error(str(exc), body or {}, upstream)
    http, causes = library.httpx, tuple(_list_causes(exc))
    transport_error = next((cause for cause in causes if isinstance(cause, http.TransportError)), None)
    if isinstance(transport_error, (http.ConnectError, http.ConnectTimeout, http.PoolTimeout)):
        return UpstreamFailed("The model's provider cannot be reached.").mark_unbilled()
    if transport_error is not None:
        timed_out = isinstance(transport_error, http.TimeoutException)
        return UpstreamTimeout() if timed_out else UpstreamFailed("The model's provider broke off.")
    if any(isinstance(cause, JSONDecodeError) for cause in causes) and not any(
        isinstance(cause, http.HTTPStatusError) for cause in causes
    ):
        return UpstreamMalformed()
    status = getattr(exc, "status_code", None)
    if isinstance(status, int):
        headers = getattr(exc, "litellm_response_headers", None) or {}
        error = _parse_provider_error(str(exc))
        if isinstance(exc, kinds.ContextWindowExceededError):
            error["code"] = "context_length_exceeded"
        elif isinstance(exc, kinds.ContentPolicyViolationError):
            error.setdefault("code", "content_policy_violation")
        return build_refusal(status, to_json({"error": error}), headers, body, upstream)
    is_malformed = isinstance(exc, (TypeError, LookupError, ValueError, AttributeError))
    return UpstreamMalformed() if is_malformed else UpstreamFailed()


def may_be_local(library: Any, exc: Exception) -> bool:
    """Returns whether an exception can come from the library's own translation, because no network is among its causes.

    The library does not announce requests to OpenAI's Responses API, so its announcements are not enough.
    """
    kinds, http = library.exceptions, library.httpx
    if isinstance(exc, kinds.UnsupportedParamsError):
        return False
    has_network = any(isinstance(cause, (http.HTTPStatusError, http.TransportError)) for cause in _list_causes(exc))
    return isinstance(exc, (kinds.APIConnectionError, kinds.BadRequestError)) and not has_network


def _build_unsupported_error(words: str, body: Mapping[str, Any], upstream: Upstream | None) -> BaobabError:
    """Builds the error for a parameter that the library itself refuses: the first one that its message names."""
    parameters = [name for name in _WORD.findall(words) if is_parameter(name) and name in body]
    error = {
        "message": words.partition("litellm.UnsupportedParamsError: ")[2] or words,
        "type": "unsupported_parameter",
    }
    if parameters:
        error["param"] = parameters[0]
    return build_refusal(400, to_json({"error": error}), None, body, upstream)


def _parse_provider_error(words: str) -> dict[str, Any]:
    """Finds the provider's error in the library's message, a text with JSON at its end."""
    start = words.find("{")
    if start >= 0:
        try:
            payload = from_json(words[start:], allow_partial=True)
        except ValueError:
            payload = None
        error = payload.get("error") if isinstance(payload, dict) else None
        if isinstance(error, dict):
            return dict(error)
    return {"message": words.rpartition("Exception - ")[2]}


def _list_causes(exc: BaseException) -> Iterator[BaseException]:
    """Yields an exception and its causes, because the library gives status 500 to errors without a status."""
    cause: BaseException | None = exc
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
