"""Renders results and errors as the headers and bytes of HTTP answers."""

import json
import math
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache, partial
from typing import Any

from pydantic_core import to_json

from baobab.tools.core.envelopes import Envelope, envelope_for
from baobab.tools.core.errors import BaobabError, RateLimited
from baobab.tools.core.limits.money import usd
from baobab.tools.core.limits.rate_limits import Allowance

Headers = list[tuple[bytes, bytes]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Reply = Callable[[int, Headers, bytes], Awaitable[None]]
"""Sends a whole answer: status, headers, body."""

TakeBody = Callable[[], bytes | None]
"""Takes the whole body of a request, if it has arrived; else returns None, and the body has to be received."""

_MOST_WARNINGS = 4000
"""The most bytes of warnings in one header: proxies refuse answers with much larger heads."""
WHOLE = "baobab.whole"
"""The scope key under which a server puts its Reply, if it can send a whole answer in one write."""
TAKE_BODY = "baobab.take_body"
"""The scope key under which a server puts its TakeBody, if it has one."""
ON_STOP = "baobab.on_stop"
"""The scope key under which an endless answer puts the function that ends it when the server stops."""


def reply_to(scope: MutableMapping[str, Any], respond: Send) -> Reply:
    # Popped, because it refers back to the scope, and only the garbage collector could free that cycle.
    reply: Reply = scope.pop(WHOLE, None) or partial(_send_in_two_messages, respond)
    return reply


async def _send_in_two_messages(respond: Send, status: int, headers: Headers, body: bytes) -> None:
    await respond({"type": "http.response.start", "status": status, "headers": headers})
    await respond({"type": "http.response.body", "body": body})


async def send_error(reply: Reply, error: BaobabError, envelope: Envelope, docs: str, headers: Headers) -> None:
    body = to_json(envelope_for(envelope, type(error)).render(error, docs))
    headers += [(name.encode(), value.encode("latin-1")) for name, value in error_headers(error).items()]
    if error.status == 401 and "www-authenticate" not in error.headers:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, RateLimited):
        headers += _exhausted_headers(error)
    headers += ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)))
    await reply(error.status, headers, body)


def error_headers(error: BaobabError) -> dict[str, str]:
    """Returns an error's own headers and its wait: in seconds, and also in milliseconds if it is a fraction."""
    seconds = error.retry_after
    if seconds is None:
        return error.headers
    retry_headers = {"retry-after": str(math.ceil(seconds))}
    if seconds != int(seconds):
        retry_headers["retry-after-ms"] = str(math.ceil(seconds * 1000))
    return {**error.headers, **retry_headers}


def warnings_header(warnings: Sequence[str]) -> tuple[bytes, bytes]:
    """Returns the header for what a caller should know about a result: a JSON array of texts, in ASCII. Of many
    warnings it has the first, and the number of the others.
    """
    shown_warnings: list[str] = []
    length = 0
    for number, warning in enumerate(warnings):
        length += len(json.dumps(warning)) + 2
        if length > _MOST_WARNINGS:
            shown_warnings.append(f"There are {len(warnings) - number} more warnings.")
            break
        shown_warnings.append(warning)
    return b"x-baobab-warnings", json.dumps(shown_warnings).encode()


def cost_header(cost: int) -> tuple[bytes, bytes]:
    """Returns the header for what a call has cost, in nano-dollars."""
    return b"x-baobab-cost-usd", f"{usd(cost):.9f}".encode()


def allowance_headers(allowance: Allowance) -> Headers:
    """Returns the headers for what is left of a rate limit, as in draft-ietf-httpapi-ratelimit-headers."""
    name, policy = _policy_header(allowance.policy, allowance.limit, allowance.window)
    return [policy, (b"ratelimit", b"%b;r=%d;t=%d" % (name, allowance.remaining, allowance.reset))]


@lru_cache(maxsize=256)
def _policy_header(name: str, limit: int, window: int) -> tuple[bytes, tuple[bytes, bytes]]:
    """Returns the quoted name of a policy and the header that describes it, which are the same for every call."""
    name_in_quotes = f'"{name}"'.encode()
    return name_in_quotes, (b"ratelimit-policy", b"%b;q=%d;w=%d" % (name_in_quotes, limit, window))


def _exhausted_headers(error: RateLimited) -> Headers:
    limit, wait = str(error.details["limit"]).encode(), error_headers(error)["retry-after"].encode()
    return [
        (b"x-ratelimit-limit", limit),
        (b"x-ratelimit-remaining", b"0"),
        (b"x-ratelimit-reset", wait),
        (b"ratelimit", b'"exhausted";r=0;t=' + wait),
    ]
