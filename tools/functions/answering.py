"""Sends what a function answers to whoever called over HTTP."""

from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

from baobab.runtime.functions.program import FunctionRequest
from baobab.tools.core import Account, AppKey, Call
from baobab.tools.core.errors import BodyTooLarge
from baobab.tools.core.stream import Body, Stream
from baobab.tools.functions.headers import choose_answer_headers, pass_on
from baobab.tools.functions.invoking import Answer

MOST_BODY = 100 * 2**20
"""Bytes of the body of a call."""
_EMPTY = frozenset((204, 205, 304))


def build_request(call: Call, content: Body | None, *, method: str | None = None) -> FunctionRequest:
    """Returns the request of a call as the function gets it."""
    http = call.context.http
    assert http is not None
    names = {name.lower() for name, _ in http.headers}
    # A Request of the web has no body with these methods.
    takes_body = (method or call.context.method) not in ("GET", "HEAD")
    has_body = takes_body and content is not None and (content.size or "transfer-encoding" in names)
    url = f"{call.context.base_url}{call.context.path}" + (f"?{http.query}" if http.query else "")
    # A key or a token of the platform is worth more than what the function may do with it.
    is_of_platform = isinstance(call.caller, Account | AppKey) or getattr(call.caller, "key_id", None) is not None
    headers = pass_on(http.headers, with_credential=not is_of_platform)
    body = _bound_body(content) if has_body and content is not None else None
    return FunctionRequest(method or call.context.method, url, tuple(headers), body)


async def _bound_body(content: Body) -> AsyncGenerator[bytes, None]:
    size = 0
    try:
        async for piece in content.chunks:
            size += len(piece)
            if size > MOST_BODY:
                raise BodyTooLarge(f"The body is larger than {MOST_BODY} bytes.", details={"max_bytes": MOST_BODY})
            yield piece
    finally:
        close = getattr(content.chunks, "aclose", None)
        if close is not None:
            await close()


def build_stream(call: Call, answer: Answer) -> Stream:
    """Returns an answer as it is sent, and adds its headers to the call."""
    content_type, headers = choose_answer_headers(answer.headers)
    call.headers = [*(call.headers or ()), *headers]
    is_empty = answer.status in _EMPTY or call.context.method == "HEAD"
    return Stream(_drop(answer) if is_empty else answer.body, content_type, status=answer.status)


async def _drop(answer: Answer) -> AsyncGenerator[bytes, None]:
    """Reads a body to its end that must not be sent."""
    async for _ in answer.body:
        pass
    return
    yield b""


def choose_status(stream: Stream) -> int:
    """Returns the status of an answer."""
    return stream.status or 200


def read_subpath(path: str) -> tuple[str, str]:
    """Returns the name of a function and what follows it in a path: `hello/a/b` is `hello` and `/a/b`."""
    name, slash, rest = path.partition("/")
    return name, f"{slash}{rest}"


def shorten_url(url: str) -> str:
    """Returns the path of a URL, for the log: a query may hold secrets."""
    return urlsplit(url).path
