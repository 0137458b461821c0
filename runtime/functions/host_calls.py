"""What a program asks of the server: one object for each call that is open."""

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from baobab.runtime.functions.frames import BadFrame, Kind, pack_frame, read_credit
from baobab.runtime.functions.host import Acting, FetchRequest, HostRefusal
from baobab.runtime.functions.invocation import Invocation
from baobab.runtime.functions.limits import EngineLimits
from baobab.runtime.functions.program import FunctionRequest
from baobab.runtime.functions.streams import Inbox, Outbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from baobab.runtime.functions.process import FunctionProcess

logger = logging.getLogger(__name__)

DEEPEST_INVOKE = 4
"""How many functions may call each other in a row; `context["depth"]` counts them."""


class HostCall:
    """A call of a member of `ctx`, a `fetch` or an `invoke`, until its answer has been sent."""

    def __init__(self, process: "FunctionProcess", invocation: Invocation, stream: int, limits: EngineLimits) -> None:
        self.invocation = invocation
        self._process = process
        self._stream = stream
        self._limits = limits
        self._task: asyncio.Task[None] | None = None
        self._inbox: Inbox | None = None
        self._outbox: Outbox | None = None

    def start(self, member: Any, arguments: Any, acting: Any, *, is_open: bool) -> None:
        """Begins the call. is_open: whether there is room for one more. Raises BadFrame."""
        if not isinstance(member, str) or not isinstance(arguments, list):
            raise BadFrame
        who = read_acting(acting)
        if member in ("fetch", "invoke"):
            head = arguments[0]
            if head["has_body"]:
                self._inbox = Inbox(self._stream, self._process.send, self._stop_body, most=self._limits.request_bytes)
            self._task = asyncio.ensure_future(self._run_exchange(member, head, is_open=is_open))
        else:
            self._task = asyncio.ensure_future(self._run_call(member, arguments, who, is_open=is_open))

    def take(self, kind: Kind, payload: bytes) -> None:
        """Takes a frame of its stream. Raises BadFrame."""
        if kind is Kind.DATA and self._inbox is not None:
            if not self._inbox.put(payload):
                self._inbox.finish(HostRefusal("PAYLOAD_TOO_LARGE", "The request's body is too large."))
        elif kind is Kind.END and self._inbox is not None:
            self._inbox.finish()
        elif kind is Kind.CREDIT and self._outbox is not None:
            self._outbox.grant(read_credit(payload))
        elif kind is Kind.CANCEL:
            self.cancel()

    def cancel(self) -> None:
        """Stops it: nobody waits for its answer."""
        self._process.forget_call(self._stream)
        if self._task is not None:
            self._task.cancel()

    def _stop_body(self) -> None:
        self._process.send(pack_frame(Kind.CANCEL, self._stream))

    async def _run_call(self, member: str, arguments: list[Any], acting: Acting, *, is_open: bool) -> None:
        try:
            self._check_room(is_open)
            value = await self.invocation.host.call(member, arguments, acting)
            self._answer(Kind.ANSWER, {"value": value})
        except Exception as error:  # noqa: BLE001 - the program gets an answer whatever happens
            self._answer(Kind.ERROR, describe_failure(error))
        finally:
            self._process.forget_call(self._stream)

    async def _run_exchange(self, member: str, head: Any, *, is_open: bool) -> None:
        body: AsyncIterator[bytes] | None = None
        try:
            self._check_room(is_open)
            method, url = str(head["method"]), str(head["url"])
            headers = tuple((str(name), str(value)) for name, value in head["headers"])
            if member == "invoke" and self.invocation.depth >= DEEPEST_INVOKE:
                raise HostRefusal("FUNCTION_DEPTH", f"Functions call each other at most {DEEPEST_INVOKE} deep.")
            if member == "fetch":
                request = FetchRequest(method, url, headers, self._inbox, str(head["redirect"]))
                response = await self.invocation.host.fetch(request)
                status, fields, body = response.status, response.headers, response.body
                place: dict[str, object] = {"url": response.url, "redirected": response.redirected}
            else:
                request_inside = FunctionRequest(method, url, headers, self._inbox)
                answer = await self.invocation.host.invoke(str(head["target"]), request_inside)
                status, fields, body, place = answer.status, tuple(answer.headers), answer.body, {}
            self._outbox = Outbox(self._stream, self._process.send)
            answer_head = {"status": status, "headers": fields, "has_body": body is not None, **place}
            self._answer(Kind.HEAD, answer_head)
            if body is not None and not await self._outbox.transmit(body, most=self._limits.response_bytes):
                raise HostRefusal("PAYLOAD_TOO_LARGE", "The answer to the request is too large.")
        except Exception as error:  # noqa: BLE001 - as above
            self._answer(Kind.ERROR, describe_failure(error))
        finally:
            self._process.forget_call(self._stream)
            if self._inbox is not None:
                self._inbox.finish()
            close = getattr(body, "aclose", None)
            if close is not None:
                await close()

    def _check_room(self, is_open: bool) -> None:
        if not is_open:
            text = f"More than {self._limits.open_calls} calls of ctx and fetch are open at once."
            raise HostRefusal("RATE_LIMITED", text, "Await some of them before you start others.")

    def _answer(self, kind: Kind, message: object) -> None:
        self._process.send(pack_frame(kind, self._stream, json.dumps(message).encode()))


def read_acting(acting: Any) -> Acting:
    """Returns whose rights a call asks for. Raises BadFrame."""
    if acting is None:
        return None
    if acting == ["anon"]:
        return ("anon",)
    if isinstance(acting, list) and len(acting) == 2 and acting[0] == "user" and isinstance(acting[1], str):
        return ("user", acting[1])
    raise BadFrame


def describe_failure(error: Exception) -> dict[str, str]:
    """Returns what a program is told: the code, message and remedy of a refusal, and nothing of any other error."""
    if isinstance(error, HostRefusal):
        return {"code": error.code, "message": error.message, "remediation": error.remediation}
    logger.error("A call of a function failed.", exc_info=error)
    return {"code": "INTERNAL_ERROR", "message": "The server could not do this.", "remediation": "Try it again later."}
