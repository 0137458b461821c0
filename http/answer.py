"""Answers: bytes and headers of results and errors."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pydantic_core import to_json

from baobab.tools.envelopes import Envelope
from baobab.tools.errors import BaobabError, RateLimited
from baobab.tools.limits import Allowance

Headers = list[tuple[bytes, bytes]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Reply = Callable[[int, Headers, bytes], Awaitable[None]]
"""Sends a whole answer: status, headers, body."""

WHOLE = "baobab.whole"
"""Where a server that can send a whole answer in one write leaves its Reply, in the request's scope."""

_JSON = b"application/json"


def reply_to(scope: dict[str, Any], respond: Send) -> Reply:
    # Taken out: it refers to what refers to the scope, and only the garbage collector would end that circle.
    reply: Reply = scope.pop(WHOLE, None) or partial(_in_two_messages, respond)
    return reply


async def _in_two_messages(respond: Send, status: int, headers: Headers, body: bytes) -> None:
    await respond({"type": "http.response.start", "status": status, "headers": headers})
    await respond({"type": "http.response.body", "body": body})


async def send(reply: Reply, status: int, body: bytes, headers: Headers, media_type: bytes = _JSON) -> None:
    if status == 204:
        body = b""
    else:
        headers.append((b"content-type", media_type))
        headers.append((b"content-length", b"%d" % len(body)))
    await reply(status, headers, body)


async def send_error(reply: Reply, error: BaobabError, envelope: Envelope, docs: str, headers: Headers) -> None:
    body = to_json(envelope.render(error, docs))
    headers += [(name.encode(), value.encode("latin-1")) for name, value in error.headers.items()]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, RateLimited):
        headers += _exhausted(error)
    await send(reply, error.status, body, headers)


def allowance_headers(allowance: Allowance) -> Headers:
    """What is left, as draft-ietf-httpapi-ratelimit-headers writes it."""
    policy = allowance.policy.encode()
    return [
        (b"ratelimit-policy", b'"%b";q=%d;w=%d' % (policy, allowance.limit, allowance.window)),
        (b"ratelimit", b'"%b";r=%d;t=%d' % (policy, allowance.remaining, allowance.reset)),
    ]


def _exhausted(error: RateLimited) -> Headers:
    limit, wait = str(error.details["limit"]).encode(), str(error.retry_after).encode()
    return [
        (b"x-ratelimit-limit", limit),
        (b"x-ratelimit-remaining", b"0"),
        (b"x-ratelimit-reset", wait),
        (b"ratelimit", b'"exhausted";r=0;t=' + wait),
    ]
