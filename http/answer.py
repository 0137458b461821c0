"""Answers: bytes and headers of results and errors."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_core import to_json

from baobab.tools.envelopes import Envelope
from baobab.tools.errors import BaobabError, RateLimited
from baobab.tools.limits import Allowance

Headers = list[tuple[bytes, bytes]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_JSON = b"application/json"


async def send(respond: Send, status: int, body: bytes, headers: Headers, media_type: bytes = _JSON) -> None:
    if status != 204:
        headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(body)), *headers]
    await respond({"type": "http.response.start", "status": status, "headers": headers})
    await respond({"type": "http.response.body", "body": b"" if status == 204 else body})


async def send_error(respond: Send, error: BaobabError, envelope: Envelope, docs: str, headers: Headers) -> None:
    body = to_json(envelope.render(error, docs))
    headers += [(name.encode(), value.encode("latin-1")) for name, value in error.headers.items()]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, RateLimited):
        headers += _exhausted(error)
    await send(respond, error.status, body, headers)


def allowance_headers(allowance: Allowance) -> Headers:
    """What is left, as draft-ietf-httpapi-ratelimit-headers writes it."""
    policy = f'"{allowance.policy}"'
    return [
        (b"ratelimit-policy", f"{policy};q={allowance.limit};w={allowance.window}".encode()),
        (b"ratelimit", f"{policy};r={allowance.remaining};t={allowance.reset}".encode()),
    ]


def _exhausted(error: RateLimited) -> Headers:
    limit, wait = str(error.details["limit"]).encode(), str(error.retry_after).encode()
    return [
        (b"x-ratelimit-limit", limit),
        (b"x-ratelimit-remaining", b"0"),
        (b"x-ratelimit-reset", wait),
        (b"ratelimit", b'"exhausted";r=0;t=' + wait),
    ]
