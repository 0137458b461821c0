"""A provider's refusal in our words, with what of its own may be passed on."""

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
from baobab.runtime.gateway.reason import LONGEST, ProviderRefusal, safe_words
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.wires.fields import known
from baobab.tools.core.errors import BaobabError

_KEY = re.compile(r"(?:sk|gsk|xai|tgp|fw|AIza|Bearer )[-_ ]?[A-Za-z0-9_*.-]{6,}")
_PATH = re.compile(r"[`'\"]?([a-z_]+(?:[.\[][a-z0-9_.\[\]]*)?)[`'\"]?(?:\s*:|\s+(?:is|may|must|does|cannot)\b)")
_QUOTED = re.compile(r"[`'\"]([a-z_]{1,40})[`'\"]")
_NOT_TAKEN = re.compile(
    r"(?i)unsupported|not support|n't support|not permitted|deprecated|not allowed|unknown|unrecogni[sz]ed|unexpected"
)
_TOO_LONG = re.compile(r"(?i)^prompt is too long|maximum context length|exceeds? the context window")
_FILTERED = re.compile(r"(?i)content.filter|content management policy")
_FLAGGED = frozenset(("content_policy_violation", "moderation_blocked", "invalid_prompt"))
_UNPAID = frozenset(("insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "insufficient_balance"))
# Hosts are not told, but these words of theirs are everybody's.
_PUBLIC = frozenset(
    ("ai", "api", "com", "localhost", "model", "models", "net", "openai", "anthropic", "org", "www", "v1")
)
_LONGEST_WAIT = 86_400
_BEFORE_WORK = (401, 403, 429, 500, 503, 529)
"""A provider that answers so charges nothing. Behind 502, 504 and the like a server in between has lost an answer."""


def refusal(
    status: int,
    raw: bytes,
    headers: Mapping[str, str] | None,
    asked: Mapping[str, Any] | None = None,
    upstream: Upstream | None = None,
) -> BaobabError:
    """A provider's refusal in our words; its cause is a ProviderRefusal with the provider's own.

    asked: the request, in which the parameter at fault is to be found: what is not in it is not told.
    """
    error = _error(raw)
    words = _words(error, raw)
    told = safe_words(words, asked, _hidden(upstream))
    failure = _failure(status, error, words, told, asked)
    failure.headers |= _waits(status, headers or {})
    if isinstance(failure, UpstreamFailed) and (status in _BEFORE_WORK or isinstance(failure, UpstreamUnpaid)):
        failure.for_nothing()
    failure.__cause__ = ProviderRefusal(status, _masked(words, upstream), told)
    return failure


def _failure(
    status: int, error: Mapping[str, Any], words: str, told: str, asked: Mapping[str, Any] | None
) -> BaobabError:
    codes = {str(error.get(name)) for name in ("code", "type")}
    if status == 402 or (status == 429 and codes & _UNPAID) or "credit balance is too low" in words:
        return UpstreamUnpaid()
    if status in (400, 413, 422):
        return _refused(error, codes, words, told, asked)
    if status == 404:
        return ProviderLacksModel(_with(ProviderLacksModel.summary, told))
    if status == 429:
        return UpstreamBusy()
    kinds = {401: UpstreamDenied, 403: UpstreamDenied, 408: UpstreamTimeout, 504: UpstreamTimeout, 524: UpstreamTimeout}
    return kinds.get(status, UpstreamFailed)()


def _refused(
    error: Mapping[str, Any], codes: set[str], words: str, told: str, asked: Mapping[str, Any] | None
) -> BaobabError:
    if "context_length_exceeded" in codes or _TOO_LONG.search(words):
        return ContextTooLong(_with(ContextTooLong.summary, told))
    if "content_filter" in codes or _FILTERED.search(words):
        return ContentFiltered(_with(ContentFiltered.summary, told))
    if codes & _FLAGGED:
        return ContentRefused(_with(ContentRefused.summary, told))
    named = _parameter(error.get("param"), words, asked)
    if is_parameter(named) and ("unsupported_parameter" in codes or _NOT_TAKEN.search(words)):
        return ParameterRefused(named, _with(f"The model does not take `{named}`", told))
    return RequestRefused(_with(RequestRefused.summary, told), details={"param": named} if named else None)


def _parameter(told: Any, words: str, asked: Mapping[str, Any] | None) -> str:
    """Which field of the request is at fault, as far as it is in the request; empty where that is not said."""
    if asked is None:
        return ""
    if isinstance(told, str):
        return known(told, asked)
    # Anthropic begins with it, and others put it between quotation marks.
    begins = _PATH.match(words)
    if begins is not None and (named := known(begins[1], asked)):
        return named
    quoted = [name for name in dict.fromkeys(_QUOTED.findall(words)) if name in asked]
    return quoted[0] if len(quoted) == 1 else ""


def _with(summary: str, told: str) -> str:
    """What happened, and what the provider says of it."""
    said = told.rstrip(".: ")
    return f"{summary.rstrip('.')}: {said}." if said else f"{summary.rstrip('.')}."


def _error(raw: bytes) -> dict[str, Any]:
    """What the provider says, in whichever of the usual forms."""
    try:
        told = from_json(raw)
    except ValueError:
        return {}
    if isinstance(told, list) and told:
        told = told[0]
    if not isinstance(told, dict):
        return {}
    error = told.get("error")
    if isinstance(error, dict):
        return error
    return {**told, "message": error} if isinstance(error, str) else told


def _words(error: Mapping[str, Any], raw: bytes) -> str:
    for name in ("message", "detail", "msg"):
        said = error.get(name)
        if isinstance(said, str) and said:
            return said[:LONGEST]
    return raw[:LONGEST].decode(errors="replace")


def _masked(words: str, upstream: Upstream | None) -> str:
    """The words without keys."""
    if upstream is not None and upstream.api_key:
        words = words.replace(upstream.api_key, "***")
    return _KEY.sub("***", words)


def _hidden(upstream: Upstream | None) -> tuple[str, ...]:
    if upstream is None:
        return ()
    host = urlsplit(upstream.api_base).hostname or ""
    # Of an address, only the whole of it: its numbers are everybody's.
    parts = (part for part in re.split(r"[.-]", host) if part not in _PUBLIC and not part.isdigit())
    return (upstream.api_key, host, *parts)


def _waits(status: int, headers: Mapping[str, str]) -> dict[str, str]:
    """How long to wait, as the provider says: in seconds, whole or not, in milliseconds, or until a date."""
    seconds = _seconds(headers)
    if seconds is None:
        return {"retry-after": "1"} if status == 429 else {}
    if status < 429:
        return {}
    waits = {"retry-after": str(math.ceil(seconds))}
    return waits if seconds == int(seconds) else {**waits, "retry-after-ms": str(math.ceil(seconds * 1000))}


def _seconds(headers: Mapping[str, str]) -> float | None:
    given, millis = headers.get("retry-after"), headers.get("retry-after-ms")
    try:
        seconds = float(millis) / 1000 if millis else float(given or "")
    except ValueError:
        try:
            date = parsedate_to_datetime(given or "")
        except ValueError:
            return None
        until = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        seconds = math.ceil((until - datetime.now(UTC)).total_seconds())
    return min(max(seconds, 0.0), _LONGEST_WAIT) if math.isfinite(seconds) else None
