"""The engine: one in each server process."""

import asyncio
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from baobab.runtime.functions.answer import FunctionAnswer, LogLine
from baobab.runtime.functions.errors import FunctionError, FunctionsBusy
from baobab.runtime.functions.host import Host
from baobab.runtime.functions.invocation import Invocation
from baobab.runtime.functions.limits import EngineLimits
from baobab.runtime.functions.pool import ProcessPool
from baobab.runtime.functions.program import FunctionRequest, Program
from baobab.runtime.functions.python_runtime import PythonRuntime

_CONTEXT = ("user", "caller", "app", "request")


class FunctionEngine:
    """Runs functions in processes of their own. Used on one event loop; starts nothing before the first invocation."""

    def __init__(self, limits: EngineLimits | None = None) -> None:
        self.limits = limits or EngineLimits()
        self._pool = ProcessPool(self.limits)
        self._python = PythonRuntime(self.limits)
        self._counts: dict[str, int] = {}

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
        """Calls a function, and returns as soon as it has answered with the head of its response.

        context: `user`, `caller`, `app`, `request` become members of `ctx`; anything else is there as it is given.
        `depth` says how many functions have called each other before this one. host: answers what the program asks
        for. timeout_ms: from the start of the handler to the last byte of its response. on_log: gets each line when
        it is written.

        If this is cancelled, or the body closed, so is the invocation. Raises FunctionTimedOut, FunctionThrew,
        NotAResponse, OutOfMemory, FunctionCancelled, FunctionsBusy and EngineUnavailable.
        """
        if program.language == "python":
            return await self._python.invoke(program, request, context, env, host, timeout_ms=timeout_ms, on_log=on_log)
        self._check_places(program.organization_id)
        organization = program.organization_id
        self._counts[organization] = self._counts.get(organization, 0) + 1
        depth = context.get("depth")
        depth = depth if isinstance(depth, int) else 0
        invocation = Invocation(program, request, host, self.limits, timeout_ms, on_log, depth)
        invocation.report.add_done_callback(lambda _: self._leave(organization))
        try:
            process = await self._pool.acquire(program, env)
        except BaseException:
            invocation.report.cancel()
            raise
        message = {
            "method": request.method,
            "url": request.url,
            "headers": request.headers,
            "has_body": request.body is not None,
            "context": {
                **{name: context.get(name) for name in _CONTEXT},
                "extra": {name: value for name, value in context.items() if name not in _CONTEXT},
            },
        }
        process.begin(invocation, message)
        invocation.send_body()
        try:
            return await asyncio.shield(invocation.head)
        except FunctionError:
            raise
        except asyncio.CancelledError:
            invocation.cancel()
            raise

    def drop(self, app_id: str, name: str | None = None) -> None:
        """Ends the warm processes of an app, or of one of its functions, after what they are doing."""
        self._pool.drop(app_id, name)

    async def close(self) -> None:
        """Kills what runs, and waits until it is gone."""
        await self._pool.close()
        await self._python.close()

    @property
    def processes(self) -> int:
        """How many processes there are."""
        return self._pool.count

    @property
    def memory_mb(self) -> float:
        """The memory that the processes have of their own."""
        return self._pool.memory_mb

    @property
    def invocations(self) -> int:
        """How many invocations are not over."""
        return sum(self._counts.values())

    def _check_places(self, organization: str) -> None:
        if self.invocations >= self.limits.invocations:
            raise FunctionsBusy("All places for functions are taken.")
        if self._counts.get(organization, 0) >= self.limits.invocations_of_organisation:
            raise FunctionsBusy("Your organisation's functions are called as often at once as they may be.")

    def _leave(self, organization: str) -> None:
        self._counts[organization] -= 1
        if not self._counts[organization]:
            del self._counts[organization]
