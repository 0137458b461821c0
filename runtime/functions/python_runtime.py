"""Runs functions in Python: in Monty, an interpreter of a part of Python, with a new process for each invocation."""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from pydantic import JsonValue

from baobab.runtime.functions.answer import FunctionAnswer, LogLine, Report, ShutdownReason
from baobab.runtime.functions.errors import (
    FunctionCancelled,
    FunctionError,
    FunctionsBusy,
    FunctionThrew,
    FunctionTimedOut,
    NotAResponse,
    OutOfMemory,
)
from baobab.runtime.functions.heads import BadHead, HeadTooLarge, read_headers
from baobab.runtime.functions.host import Acting, FetchRequest, Host, HostRefusal
from baobab.runtime.functions.host_calls import DEEPEST_INVOKE, describe_failure, read_acting
from baobab.runtime.functions.launching import SANDBOX
from baobab.runtime.functions.limits import EngineLimits
from baobab.runtime.functions.log_keeper import LogKeeper
from baobab.runtime.functions.monty_pool import MontyPool, monty, open_pool
from baobab.runtime.functions.program import FunctionRequest, Program

logger = logging.getLogger(__name__)

_CALL = """_ctx = Context(_context, _env)
await _handle(handler, Request(_request["method"], _request["url"], _request["headers"], _request["body"]), _ctx)"""
_WAIT = """for _each in _ctx.background:
    try:
        await _each
    except Exception as _error:
        print("wait_until:", _error)"""
_STACK_BYTES = 8192
_MOST_CALLS = 10_000


def read_prelude() -> str:
    """Returns the source of what a function finds beside the language."""
    return (SANDBOX / "prelude.monty").read_text(encoding="utf-8")


class PythonRuntime:
    """Runs functions in Python. A process serves one invocation, and never another one."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._pool: MontyPool | None = None
        self._opening = asyncio.Lock()
        self._counts: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def invoke(
        self,
        program: Program,
        request: FunctionRequest,
        context: Mapping[str, JsonValue],
        env: Mapping[str, str],
        host: Host,
        *,
        timeout_ms: int,
        on_log: Callable[[LogLine], None],
    ) -> FunctionAnswer:
        """Calls a function and returns its whole answer. Raises what `FunctionEngine.invoke` raises."""
        organization = program.organization_id
        self._check_places(organization)
        self._counts[organization] = self._counts.get(organization, 0) + 1
        run = PythonInvocation(program, host, self._limits, context, on_log)
        try:
            pool = await self._open_pool()
        except BaseException:
            self._leave(organization)
            raise
        task = asyncio.ensure_future(run.run(pool, request, env, timeout_ms))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._leave(organization))
        try:
            return await asyncio.shield(run.head)
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def close(self) -> None:
        """Ends what runs, and its processes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _open_pool(self) -> MontyPool:
        async with self._opening:
            if self._pool is None:
                self._pool = await open_pool(self._limits.python_processes)
            return self._pool

    def _check_places(self, organization: str) -> None:
        most = self._limits.python_processes
        own = self._counts.get(organization, 0)
        if sum(self._counts.values()) >= most:
            raise FunctionsBusy("All places for functions in Python are taken.")
        if own and own >= most * self._limits.organisation_share:
            raise FunctionsBusy("Your organisation's functions in Python are called as often at once as they may be.")

    def _leave(self, organization: str) -> None:
        self._counts[organization] -= 1
        if not self._counts[organization]:
            del self._counts[organization]


class PythonInvocation:
    """One request to a function in Python."""

    def __init__(
        self,
        program: Program,
        host: Host,
        limits: EngineLimits,
        context: Mapping[str, JsonValue],
        on_log: Callable[[LogLine], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.head: asyncio.Future[FunctionAnswer] = loop.create_future()
        self.report: asyncio.Future[Report] = loop.create_future()
        self._program = program
        self._host = host
        self._limits = limits
        self._context = dict(context)
        self._logs = LogKeeper(limits, on_log)
        self._started = loop.time()
        self._duration_ms: float | None = None
        self._waited = 0.0
        self._open_calls: set[asyncio.Future[Any]] = set()
        self._line = ""

    async def run(self, pool: MontyPool, request: FunctionRequest, env: Mapping[str, str], timeout_ms: int) -> None:
        """Makes the whole invocation, with what it leaves to `wait_until`."""
        error: FunctionError | None = None
        reason: ShutdownReason = "EventLoopCompleted"
        try:
            error, reason = await self._run_in_time(pool, request, env, timeout_ms)
        except asyncio.CancelledError:
            error, reason = FunctionCancelled("The invocation was stopped."), "TerminationRequested"
        finally:
            # The library leaves them to themselves.
            for asking in list(self._open_calls):
                asking.cancel()
            report = self._make_report(error, reason)
            self.report.set_result(report)
            if not self.head.done():
                error = error or FunctionThrew("The function ended without a response.")
                error.report = report
                self.head.set_exception(error)
                # It may be that the caller was cancelled.
                self.head.exception()

    async def _run_in_time(
        self, pool: MontyPool, request: FunctionRequest, env: Mapping[str, str], timeout_ms: int
    ) -> tuple[FunctionError | None, ShutdownReason]:
        module = await monty.get()
        try:
            async with asyncio.timeout(timeout_ms / 1000) as timer:
                await self._run(pool, request, env, timer)
        except TimeoutError:
            if self.head.done():
                return None, "WallClockTime"
            text = f"The function did not answer within {timeout_ms} ms."
            return FunctionTimedOut(self._measure_ms(), text), "WallClockTime"
        except FunctionError as error:
            return error, "EventLoopCompleted"
        except module.MontyError as error:
            return self._read_error(error)
        except Exception:
            logger.exception("A function in Python could not be run.")
            return FunctionThrew("The server could not run the function."), "Crashed"
        return None, "EventLoopCompleted"

    async def _run(
        self, pool: MontyPool, request: FunctionRequest, env: Mapping[str, str], timer: asyncio.Timeout
    ) -> None:
        body = await _read_body(request.body, self._limits.python_body_bytes)
        inputs = {
            "_context": {name: self._context.get(name) for name in ("user", "caller", "app", "request")},
            "_env": dict(env),
            "_request": {
                "method": request.method,
                "url": request.url,
                "headers": {name.lower(): value for name, value in request.headers},
                "body": body,
            },
        }
        outside = {"host_call": self._call, "host_fetch": self._fetch, "host_invoke": self._invoke}
        seconds = self._limits.cpu_ms / 1000
        limits = {
            "max_feed_duration_secs": seconds,
            "max_memory": self._program.memory_mb * 2**20,
            "max_suspensions": _MOST_CALLS,
        }
        async with pool.checkout(limits=limits) as session:
            await session.feed_run(read_prelude())
            await session.feed_run(self._program.code, print_callback=self._print)
            answer = await session.feed_run(_CALL, inputs=inputs, external_lookup=outside, print_callback=self._print)
            self._answer(answer)
            timer.reschedule(asyncio.get_running_loop().time() + self._limits.wait_until_seconds)
            await session.feed_run(_WAIT, external_lookup=outside, print_callback=self._print)

    def _answer(self, answer: Any) -> None:
        # The program can replace what made this.
        if not isinstance(answer, dict) or not isinstance(answer.get("headers"), dict):
            raise NotAResponse("The function returned nothing that can be sent.")
        content = answer.get("body") or b""
        if answer.get("status") is None or not isinstance(content, bytes):
            kind = str(content)[:100]
            raise NotAResponse(f"The function returned {kind}, not a Response, a dict or a list.")
        try:
            headers = read_headers(answer["status"], answer["headers"].items())
        except (BadHead, HeadTooLarge) as error:
            text = str(error) or "The response has a status or a header that HTTP does not have."
            raise FunctionThrew(f"ValueError: {text}") from error
        self._duration_ms = self._measure_ms()
        self.head.set_result(FunctionAnswer(answer["status"], headers, _send(content), asyncio.shield(self.report)))

    # ---- What the function asks for.

    async def _call(self, member: str, arguments: list[Any], acting: Any) -> dict[str, Any]:
        async def ask() -> Any:
            who: Acting = read_acting(acting)
            return _unpack(await self._host.call(str(member), [_pack(each) for each in arguments], who))

        return await self._ask(ask)

    async def _fetch(
        self, url: str, method: str, headers: dict[str, str], body: bytes | None, redirect: str
    ) -> dict[str, Any]:
        async def ask() -> Any:
            fields = tuple((str(name), str(value)) for name, value in headers.items())
            content = None if body is None else _send(body)
            response = await self._host.fetch(FetchRequest(method.upper(), str(url), fields, content, str(redirect)))
            content_in = await _read_body(response.body, self._limits.python_body_bytes)
            place = {"url": response.url or url, "headers": {name.lower(): value for name, value in response.headers}}
            return {"status": response.status, "body": content_in, **place}

        return await self._ask(ask)

    async def _invoke(self, name: str, method: str, headers: dict[str, str], body: bytes | None) -> dict[str, Any]:
        async def ask() -> Any:
            depth = self._context.get("depth")
            if isinstance(depth, int) and depth >= DEEPEST_INVOKE:
                raise HostRefusal("FUNCTION_DEPTH", f"Functions call each other at most {DEEPEST_INVOKE} deep.")
            fields = tuple((str(key), str(value)) for key, value in headers.items())
            content = None if body is None else _send(body)
            request = FunctionRequest(method.upper(), "http://function/", fields, content)
            answer = await self._host.invoke(str(name), request)
            content_in = await _read_body(answer.body, self._limits.python_body_bytes)
            return {"status": answer.status, "headers": dict(answer.headers), "body": content_in, "url": ""}

        return await self._ask(ask)

    async def _ask(self, ask: Callable[[], Coroutine[Any, Any, Any]]) -> dict[str, Any]:
        begin = time.monotonic()
        asking = asyncio.ensure_future(ask())
        self._open_calls.add(asking)
        try:
            if len(self._open_calls) > self._limits.open_calls:
                asking.cancel()
                raise HostRefusal("RATE_LIMITED", f"More than {self._limits.open_calls} calls of ctx are open at once.")
            return {"error": None, "value": await asking}
        except Exception as error:  # noqa: BLE001 - the program gets an answer whatever happens
            failure = describe_failure(error)
            text = f"{failure['code']}: {failure['message']} {failure['remediation']}".strip()
            return {"error": text, "value": None}
        finally:
            self._open_calls.discard(asking)
            self._waited += time.monotonic() - begin

    # ---- What it says.

    def _print(self, stream: str, text: str) -> None:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._logs.add("error" if stream == "stderr" else "info", line[:_STACK_BYTES], time.time_ns() // 1_000_000)

    def _read_error(self, error: Any) -> tuple[FunctionError, ShutdownReason]:
        most = self._limits.cpu_ms
        out_of_time = FunctionTimedOut(
            self._measure_ms(), f"The function used more than {most:g} ms of processor time."
        )
        if not hasattr(error, "display"):
            # One operation, such as a product of huge numbers, cannot be interrupted: then the process is ended.
            if self._measure_cpu_ms(self._measure_ms()) >= most:
                return out_of_time, "CPUTime"
            return FunctionThrew("The function's process ended by itself."), "Crashed"
        text = error.display("type-msg")
        if text.startswith(("MemoryError: memory limit", "MemoryError: the worker exceeded its memory limit")):
            memory_mb = self._program.memory_mb
            return OutOfMemory(f"The function needed more than {memory_mb} MB of memory."), "Memory"
        if text.startswith("TimeoutError: feed time limit"):
            return out_of_time, "CPUTime"
        return FunctionThrew(text, name_source(error.display("traceback"), self._program.name)), "EventLoopCompleted"

    def _measure_ms(self) -> float:
        return (asyncio.get_running_loop().time() - self._started) * 1000

    def _measure_cpu_ms(self, duration_ms: float) -> float:
        """Returns the time in which nothing else was waited for: the interpreter does not say what it has used."""
        return max(0.0, duration_ms - self._waited * 1000)

    def _make_report(self, error: FunctionError | None, reason: ShutdownReason) -> Report:
        if self._line:
            self._print("stdout", "\n")
        duration_ms = self._duration_ms or self._measure_ms()
        return Report(
            duration_ms=duration_ms,
            cpu_ms=self._measure_cpu_ms(duration_ms),
            memory_mb=0.0,
            shutdown_reason=reason,
            error=str(error) if error else None,
            stack=error.stack if isinstance(error, FunctionThrew) else None,
            logs=self._logs.finish(),
        )


def name_source(traceback: str, name: str) -> str:
    """Returns a traceback with the function's name for its source, which is the second text of a session."""
    return traceback.replace("<python-input-1>", f"{name}.py")[-_STACK_BYTES:]


async def _read_body(body: AsyncIterator[bytes] | None, most: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    if body is not None:
        async for piece in body:
            size += len(piece)
            if size > most:
                raise FunctionThrew(f"A body has more than {most} bytes, which a function in Python may have.")
            pieces.append(piece)
    return b"".join(pieces)


async def _send(content: bytes) -> AsyncIterator[bytes]:
    if content:
        yield content


def _pack(value: Any) -> JsonValue:
    """Returns what a program gave as JSON. Raises HostRefusal for what JSON does not have."""
    if isinstance(value, bytes):
        return {"$base64": base64.b64encode(value).decode()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list | tuple):
        return [_pack(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _pack(each) for key, each in value.items()}
    raise HostRefusal("VALIDATION_ERROR", f"A {type(value).__name__} cannot be sent.", "Send what JSON has, or bytes.")


def _unpack(value: JsonValue) -> Any:
    if isinstance(value, dict) and isinstance(value.get("$base64"), str):
        return base64.b64decode(str(value["$base64"]))
    return value
