"""Turns a provider's refusal into one of the gateway's errors, with the safe part of the provider's words."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json

from baobab.runtime.gateway.errors import (
    ContentFiltered,
    ContentRefused,
    ContextTooLong,
    ParameterRefused,
    ProviderLacksModel,
    RequestRefused,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamTimeout,
    UpstreamUnpaid,
)
from baobab.runtime.gateway.parameters import is_parameter
from baobab.runtime.gateway.reason import LONGEST, ProviderRefusal, extract_safe_words
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.wires.fields import resolve_path
from baobab.tools.core.errors import BaobabError

_KEY = re.compile(r"(?:sk|gsk|xai|tgp|fw|AIza|Bearer )[-_ ]?[A-Za-z0-9_*.-]{6,}")
_PATH = re.compile(r"[`'\"]?([a-z_]+(?:[.\[][a-z0-9_.\[\]]*)?)[`'\"]?(?:\s*:|\s+(?:is|may|must|does|cannot)\b)")
_QUOTED_NAME = re.compile(r"[`'\"]([a-z_]{1,40})[`'\"]")
_NOT_TAKEN = re.compile(
    r"(?i)unsupported|not support|n't support|not permitted|deprecated|not allowed|unknown|unrecogni[sz]ed|unexpected"
)
_TOO_LONG = re.compile(r"(?i)^prompt is too long|maximum context length|exceeds? the context window")
_FILTER_WORDS = re.compile(r"(?i)content.filter|content management policy")
_POLICY_CODES = frozenset(("content_policy_violation", "moderation_blocked", "invalid_prompt"))
_UNPAID_CODES = frozenset(
    ("insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "insufficient_balance")
)
# Hosts are secret, but these parts of their names are common.
_PUBLIC = frozenset(
    ("ai", "api", "com", "localhost", "model", "models", "net", "openai", "anthropic", "org", "www", "v1")
)
_LONGEST_WAIT = 86_400
_BEFORE_WORK = (401, 403, 429, 500, 503, 529)
"""The statuses with which a provider charges nothing. With 502 or 504 a proxy may have lost an answer."""


def build_refusal(
    status: int,
    raw: bytes,
    headers: Mapping[str, str] | None,
    request: Mapping[str, Any] | None = None,
    upstream: Upstream | None = None,
) -> BaobabError:
    """Builds the error for a provider's refusal; its cause is a ProviderRefusal with the provider's own words.

    request: the request's body. A parameter is named in the error only if it is in there.
    """
    error = _parse_error(raw)
    words = _read_words(error, raw)
    safe_text = extract_safe_words(words, request, _hidden_words(upstream))
    failure = _classify_failure(status, error, words, safe_text, request)
    failure.retry_after = _find_wait(status, headers or {})
    if isinstance(failure, UpstreamFailed) and (status in _BEFORE_WORK or isinstance(failure, UpstreamUnpaid)):
        failure.mark_unbilled()
    failure.__cause__ = ProviderRefusal(status, _mask_keys(words, upstream), safe_text)
    return failure


def _classify_failure(
    status: int, error: Mapping[str, Any], words: str, safe_text: str, request: Mapping[str, Any] | None
) -> BaobabError:
    codes = {str(error.get(name)) for name in ("code", "type")}
    if status == 402 or (status == 429 and codes & _UNPAID_CODES) or "credit balance is too low" in words:
        return UpstreamUnpaid()
    if status in (400, 413, 422):
        return _build_bad_request(error, codes, words, safe_text, request)
    if status == 404:
        return ProviderLacksModel(_append_words(ProviderLacksModel.summary, safe_text))
    if status == 429:
        return UpstreamBusy()
    kinds = {401: UpstreamDenied, 403: UpstreamDenied, 408: UpstreamTimeout, 504: UpstreamTimeout, 524: UpstreamTimeout}
    return kinds.get(status, UpstreamFailed)()


def _build_bad_request(
    error: Mapping[str, Any], codes: set[str], words: str, safe_text: str, request: Mapping[str, Any] | None
) -> BaobabError:
    if "context_length_exceeded" in codes or _TOO_LONG.search(words):
        return ContextTooLong(_append_words(ContextTooLong.summary, safe_text))
    if "content_filter" in codes or _FILTER_WORDS.search(words):
        return ContentFiltered(_append_words(ContentFiltered.summary, safe_text))
    if codes & _POLICY_CODES:
        return ContentRefused(_append_words(ContentRefused.summary, safe_text))
    parameter = _find_parameter(error.get("param"), words, request)
    if is_parameter(parameter) and ("unsupported_parameter" in codes or _NOT_TAKEN.search(words)):
        return ParameterRefused(parameter, _append_words(f"The model does not take `{parameter}`", safe_text))
    return RequestRefused(
        _append_words(RequestRefused.summary, safe_text), details={"param": parameter} if parameter else None
    )


def _find_parameter(param: Any, words: str, request: Mapping[str, Any] | None) -> str:
    """Finds the field of the request that the provider complains about; empty if it does not name one."""
    if request is None:
        return ""
    if isinstance(param, str):
        return resolve_path(param, request)
    # Anthropic's messages begin with the field; other providers put it in quotation marks.
    path_match = _PATH.match(words)
    if path_match is not None and (field := resolve_path(path_match[1], request)):
        return field
    quoted_names = [name for name in dict.fromkeys(_QUOTED_NAME.findall(words)) if name in request]
    return quoted_names[0] if len(quoted_names) == 1 else ""


def _append_words(summary: str, safe_text: str) -> str:
    """Joins a summary and the safe part of the provider's words."""
    reason = safe_text.rstrip(".: ")
    return f"{summary.rstrip('.')}: {reason}." if reason else f"{summary.rstrip('.')}."


def _parse_error(raw: bytes) -> dict[str, Any]:
    """Parses the error object of an answer, in any of the usual forms; empty if there is none."""
    try:
        payload = from_json(raw)
    except ValueError:
        return {}
    if isinstance(payload, list) and payload:
        payload = payload[0]
    if not isinstance(payload, dict):
        return {}
    error = payload.get("error")
    if isinstance(error, dict):
        return error
    return {**payload, "message": error} if isinstance(error, str) else payload


def _read_words(error: Mapping[str, Any], raw: bytes) -> str:
    for name in ("message", "detail", "msg"):
        words = error.get(name)
        if isinstance(words, str) and words:
            return words[:LONGEST]
    return raw[:LONGEST].decode(errors="replace")


def _mask_keys(words: str, upstream: Upstream | None) -> str:
    """Masks keys in the words."""
    if upstream is not None and upstream.api_key:
        words = words.replace(upstream.api_key, "***")
    return _KEY.sub("***", words)


def _hidden_words(upstream: Upstream | None) -> tuple[str, ...]:
    if upstream is None:
        return ()
    host = urlsplit(upstream.api_base).hostname or ""
    # Numbers alone are not secret: an IP address is hidden only as a whole.
    parts = (part for part in re.split(r"[.-]", host) if part not in _PUBLIC and not part.isdigit())
    return (upstream.api_key, host, *parts)


def _find_wait(status: int, headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that a provider asks to wait; None where its refusal is not about load."""
    if status < 429:
        return None
    seconds = _parse_wait(headers)
    return 1.0 if seconds is None and status == 429 else seconds


def _parse_wait(headers: Mapping[str, str]) -> float | None:
    """Parses the wait that a provider's headers give in seconds, in milliseconds or as a date."""
    retry_after, retry_after_ms = headers.get("retry-after"), headers.get("retry-after-ms")
    try:
        seconds = float(retry_after_ms) / 1000 if retry_after_ms else float(retry_after or "")
    except ValueError:
        try:
            date = parsedate_to_datetime(retry_after or "")
        except ValueError:
            return None
        until = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        seconds = math.ceil((until - datetime.now(UTC)).total_seconds())
    return min(max(seconds, 0.0), _LONGEST_WAIT) if math.isfinite(seconds) else None
