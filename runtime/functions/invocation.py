"""One request to a function, from its start to the end of what it left to do."""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from baobab.runtime.functions.answer import FunctionAnswer, LogLine, Report, ShutdownReason
from baobab.runtime.functions.errors import (
    FunctionCancelled,
    FunctionError,
    FunctionThrew,
    FunctionTimedOut,
    NotAResponse,
    OutOfMemory,
    ResponseTooLarge,
)
from baobab.runtime.functions.frames import BadFrame, Kind, pack_frame, read_credit
from baobab.runtime.functions.heads import BadHead, HeadTooLarge, read_headers
from baobab.runtime.functions.host import Host
from baobab.runtime.functions.limits import EngineLimits
from baobab.runtime.functions.log_keeper import LogKeeper
from baobab.runtime.functions.program import FunctionRequest, Program
from baobab.runtime.functions.stacks import clean_stack, hide_paths
from baobab.runtime.functions.streams import Inbox, Outbox

if TYPE_CHECKING:
    from baobab.runtime.functions.process import FunctionProcess

_LEVELS = ("debug", "info", "warn", "error")
_ANSWERS_AFTER_CANCEL_SECONDS = 0.5


class Invocation:
    """State of one invocation. Its process hands it frames; its caller waits for `head`."""

    def __init__(
        self,
        program: Program,
        request: FunctionRequest,
        host: Host,
        limits: EngineLimits,
        timeout_ms: int,
        on_log: Callable[[LogLine], None],
        depth: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.id = 0
        self.program = program
        self.host = host
        self.depth = depth
        self.cpu_ms = 0.0
        self.head: asyncio.Future[FunctionAnswer] = loop.create_future()
        self.report: asyncio.Future[Report] = loop.create_future()
        self._request = request
        self._limits = limits
        self._timeout_ms = timeout_ms
        self._process: FunctionProcess | None = None
        self._memory_mb = 0.0
        self._started = loop.time()
        self._duration_ms: float | None = None
        self._error: FunctionError | None = None
        self._reason: ShutdownReason | None = None
        self._logs = LogKeeper(limits, on_log)
        self._body: Inbox | None = None
        self._outbox: Outbox | None = None
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def attach(self, process: "FunctionProcess", number: int) -> None:
        """Starts its clock, in the process that runs it."""
        loop = asyncio.get_running_loop()
        self.id = number
        self._process = process
        self._started = loop.time()
        self._timer = loop.call_later(self._timeout_ms / 1000, self._time_out)

    def send_body(self) -> None:
        """Begins to send the request's body, where it has one."""
        if self._request.body is not None and self._process is not None:
            self._outbox = Outbox(self.id, self._process.send)
            self._sending = asyncio.ensure_future(self._send_body())

    def add_usage(self, cpu_ms: float, memory_mb: float) -> None:
        """Adds processor time, and notes the memory of its process."""
        self.cpu_ms += cpu_ms
        self._memory_mb = max(self._memory_mb, memory_mb)

    @property
    def duration_ms(self) -> float:
        """Milliseconds until the response was sent, or until now."""
        return self._duration_ms or (asyncio.get_running_loop().time() - self._started) * 1000

    # ---- Frames of its process.

    def take(self, kind: Kind, payload: bytes) -> None:
        """Takes a frame. Raises BadFrame, KeyError, TypeError and ValueError if the runner would not send it."""
        if kind is Kind.LOG:
            self._take_log(json.loads(payload))
        elif kind is Kind.HEAD:
            self._take_head(json.loads(payload))
        elif kind is Kind.DATA:
            self._take_data(payload)
        elif kind is Kind.END:
            self._end_response()
        elif kind is Kind.CREDIT:
            size = read_credit(payload)
            if self._outbox is not None:
                self._outbox.grant(size)
        elif kind is Kind.ERROR:
            self._take_error(json.loads(payload))
        elif kind is Kind.DONE:
            self._finish(self._reason or "EventLoopCompleted")
        else:
            raise BadFrame

    def _take_head(self, head: Any) -> None:
        if self.head.done() or self._body is not None:
            raise BadFrame
        assert self._process is not None
        try:
            headers = read_headers(head["status"], head["headers"])
        except BadHead:
            raise BadFrame from None
        except HeadTooLarge as error:
            self._fail(FunctionThrew(str(error)))
            self.cancel()
            return
        self._body = Inbox(self.id, self._process.send, self.cancel, most=self._limits.response_bytes)
        self.head.set_result(FunctionAnswer(head["status"], headers, self._body, asyncio.shield(self.report)))
        if not head["has_body"]:
            self._end_response()

    def _take_data(self, payload: bytes) -> None:
        if self._body is None:
            raise BadFrame
        if not self._body.put(payload):
            most = self._limits.response_bytes
            self._fail(ResponseTooLarge(f"The function's response has more than {most} bytes."))
            self.cancel()

    def _end_response(self) -> None:
        if self._body is None:
            raise BadFrame
        self._body.finish()
        self._duration_ms = self.duration_ms
        # What is left to do has a time of its own.
        self._set_timer(self._limits.wait_until_seconds + 1)

    def _take_error(self, error: Any) -> None:
        text = hide_paths(f"{error['name']}: {error['message']}")
        stack = clean_stack(str(error["stack"]), f"{self.program.name}.ts") or None
        if error["type"] == "not_a_response":
            self._fail(NotAResponse(hide_paths(str(error["message"]))))
        else:
            self._fail(FunctionThrew(text, stack))
        self._set_timer(self._limits.wait_until_seconds + 1)

    def _take_log(self, line: Any) -> None:
        level, message, at = line["level"], line["message"], line["at"]
        if level not in _LEVELS or not isinstance(message, str) or type(at) is not int:
            raise BadFrame
        self._logs.add(level, hide_paths(message) if "file:" in message else message, at)

    # ---- The ends.

    def cancel(self) -> None:
        """Stops it, because nobody waits for its answer. The process goes on if it lets itself be told."""
        self._stop_softly("TerminationRequested", "The client closed the connection.")

    def _time_out(self) -> None:
        if self._duration_ms is None and self._error is None:
            self._fail(FunctionTimedOut(self.duration_ms, f"The function did not answer within {self._timeout_ms} ms."))
        assert self._process is not None
        # What keeps it from answering may go on in this process; so it gets nothing new.
        self._process.retired = True
        self._stop_softly("WallClockTime", "The function's time is over.")

    def _stop_softly(self, reason: ShutdownReason, message: str) -> None:
        if self._is_over or self._process is None:
            return
        self._reason = reason
        if not self.head.done() and self._error is None:
            self._fail(FunctionCancelled(message))
        self._process.send(pack_frame(Kind.CANCEL, self.id, message.encode()))
        self._set_timer(_ANSWERS_AFTER_CANCEL_SECONDS, lambda: self._kill_process(reason))

    def _kill_process(self, reason: ShutdownReason) -> None:
        if self._process is not None:
            self._process.kill(reason, self)

    def stop(self, reason: ShutdownReason, message: str) -> None:
        """Says that its process has ended. The caller gets the error that fits the reason, unless it has one."""
        if self._error is None:
            self._fail(self._make_error(reason, message))
        self._finish(self._reason or reason)

    def _make_error(self, reason: ShutdownReason, message: str) -> FunctionError:
        if reason == "Memory":
            return OutOfMemory(f"The function needed more than {self.program.memory_mb} MB of memory.")
        if reason == "CPUTime":
            most = self._limits.cpu_ms
            return FunctionTimedOut(self.duration_ms, f"The function used more than {most:g} ms of processor time.")
        if reason == "WallClockTime":
            return FunctionTimedOut(self.duration_ms, f"The function did not answer within {self._timeout_ms} ms.")
        if reason == "TerminationRequested":
            return FunctionCancelled(message or "Functions are being stopped on this server.")
        if reason == "EarlyDrop":
            return FunctionThrew("Another invocation of this function exceeded a limit, and its process was ended.")
        return FunctionThrew(message or "The function's process ended by itself.")

    def _fail(self, error: FunctionError) -> None:
        self._error = error
        self._duration_ms = self.duration_ms
        if self._body is not None:
            self._body.finish(error)

    def _set_timer(self, seconds: float, action: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, action or self._time_out)

    def _finish(self, reason: ShutdownReason) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()
        assert self._process is not None
        self._process.end(self)
        if self._error is None and not self.head.done():
            self._fail(FunctionThrew("The function ended without a response."))
        report = self._make_report(reason)
        self.report.set_result(report)
        if self._error is not None:
            self._error.report = report
            if not self.head.done():
                self.head.set_exception(self._error)
                # It may be that the caller was cancelled.
                self.head.exception()
        if self._body is not None:
            self._body.finish(self._error or FunctionCancelled("The invocation was stopped."))

    def _make_report(self, reason: ShutdownReason) -> Report:
        error = self._error
        return Report(
            duration_ms=self.duration_ms,
            cpu_ms=self.cpu_ms,
            memory_mb=self._memory_mb,
            shutdown_reason=reason,
            error=str(error) if error else None,
            stack=error.stack if isinstance(error, FunctionThrew) else None,
            logs=self._logs.finish(),
        )

    async def _send_body(self) -> None:
        assert self._request.body is not None
        assert self._outbox is not None
        assert self._process is not None
        most = self._limits.request_bytes
        try:
            if await self._outbox.transmit(self._request.body, most=most):
                return
            text = f"The request's body has more than {most} bytes."
        except Exception as error:  # noqa: BLE001 - whatever reading fails of, the function is told that it did
            text = f"The request's body was cut: {type(error).__name__}."
        self._process.send(pack_frame(Kind.ERROR, self.id, json.dumps({"message": text}).encode()))
