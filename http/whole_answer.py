"""Sends a whole answer, with status, headers and body, in one write.

uvicorn writes the head and the body of an answer one after the other, with two system calls. The REST interface
has both before it sends either.
"""

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from baobab.http.answer import Headers

_CLOSE = (b"connection", b"close")


async def send_whole(cycle: RequestResponseCycle, status: int, headers: Headers, body: bytes) -> None:
    """Sends the answer of a request cycle in one write, instead of two messages to its `send`. The headers are our own
    and need no check.
    """
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if cycle.disconnected or cycle.response_started:
        return
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    parts = [STATUS_LINE[status]]
    for name, value in cycle.default_headers:
        parts += (name, b": ", value, b"\r\n")
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    if _CLOSE in headers:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        parts.append(b"connection: close\r\n")
    parts.append(b"\r\n")
    if cycle.scope["method"] != "HEAD":
        parts.append(body)
    cycle.transport.write(b"".join(parts))
    cycle.chunked_encoding = False
    cycle.expected_content_length = 0
    cycle.response_complete = True
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
