"""One process that runs one program, and the frames to and from it."""

import asyncio
import json
import logging
import os
import re
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from baobab.runtime.functions.answer import ShutdownReason
from baobab.runtime.functions.bundle import Bundle, make_import_map, read_bundle
from baobab.runtime.functions.errors import EngineUnavailable, FunctionThrew, FunctionTimedOut, OutOfMemory
from baobab.runtime.functions.frames import CALL_BIT, BadFrame, FrameParser, Kind, pack_frame
from baobab.runtime.functions.host_calls import HostCall
from baobab.runtime.functions.imports import read_refusals
from baobab.runtime.functions.invocation import Invocation
from baobab.runtime.functions.launching import SANDBOX, make_command
from baobab.runtime.functions.limits import EngineLimits
from baobab.runtime.functions.node_modules import NODE_MODULES
from baobab.runtime.functions.program import Program
from baobab.runtime.functions.stacks import hide_paths
from baobab.runtime.functions.usage import ProcessUsage

logger = logging.getLogger(__name__)

_STDERR_KEPT = 4096
_FREEZE_AFTER_SECONDS = 0.05
_HEAP_MARGIN_MB = 32
"""Memory beside the heap of a program that V8 needs while it collects, and small buffers of the program."""

_FLAGS = [
    "run",
    "--quiet",
    "--no-prompt",
    "--no-remote",
    "--no-npm",
    "--no-config",
    "--no-lock",
    "--cached-only",
    "--no-code-cache",
    "--deny-net",
    "--deny-read",
    "--deny-write",
    "--deny-env",
    "--deny-run",
    "--deny-ffi",
    "--deny-sys",
    "--deny-import",
]
_NODE_GLOBALS = re.compile(r"\b(?:Buffer|process)\b")


class FunctionProcess(asyncio.SubprocessProtocol):
    """A running process. It is begun by `start`, given its program by `load`, and ended by `kill`.

    Everything that arrives from it may have been written by a stranger.
    """

    def __init__(self, memory_mb: int, limits: EngineLimits) -> None:
        self.memory_mb = memory_mb
        self.invocations: dict[int, Invocation] = {}
        self.retired = False
        """Whether it must not get new invocations."""
        self.last_used = 0.0
        self.on_end: Callable[[], None] = _do_nothing
        self._limits = limits
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._usage: ProcessUsage | None = None
        self._parser = FrameParser(limits.call_bytes)
        self._calls: dict[int, HostCall] = {}
        self._stderr = b""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._loaded: asyncio.Future[dict[str, Any]] | None = None
        self._ended: asyncio.Event = asyncio.Event()
        self._shutdown: ShutdownReason | None = None
        self._last_invocation = 0
        self._is_frozen = False
        self._freezing: asyncio.TimerHandle | None = None
        self._write_ready = asyncio.Event()
        self._write_ready.set()

    @classmethod
    async def start(cls, memory_mb: int, limits: EngineLimits, bundle: Bundle | None = None) -> "FunctionProcess":
        """Starts a process that has not loaded a program yet. Raises EngineUnavailable.

        bundle: the program that it will load, whose imports have to be known from the start.
        """
        process = cls(memory_mb, limits)
        imports = SANDBOX / "imports.json"
        if bundle is not None and bundle.modules:
            process._folder = tempfile.TemporaryDirectory(prefix="baobab-function-")
            imports = Path(process._folder.name, "imports.json")
            await asyncio.to_thread(imports.write_text, make_import_map(read_refusals(), bundle), encoding="utf-8")
        runner = SANDBOX / "runner.js"
        flags = [*_FLAGS, f"--import-map={imports}", f"--v8-flags=--max-old-space-size={memory_mb}", str(runner)]
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: process, *make_command(flags, [runner, imports]), env={}, cwd="/", start_new_session=True
            )
        except OSError as error:
            raise EngineUnavailable(f"No process could be started for a function: {error.strerror}.") from error
        process._usage = ProcessUsage(transport.get_pid())
        return process

    async def load(self, program: Program, env: Mapping[str, str], *, wants_schema: bool = False) -> dict[str, Any]:
        """Gives the process its program. Returns `{"entry", "schema", "error"}` as the process says it.

        Raises FunctionTimedOut, OutOfMemory and FunctionThrew, if the module does not come to its end.
        """
        self._loaded = asyncio.get_running_loop().create_future()
        entry = read_bundle(program.code).entry
        node = [name for name in NODE_MODULES if f"node:{name}" in program.code]
        message = {
            "code": entry.source,
            # They take long to load, and cannot be loaded later.
            "node": node,
            "uses_node": bool(node) or _NODE_GLOBALS.search(program.code) is not None,
            "media_type": entry.media_type,
            "env": dict(env),
            "wants_schema": wants_schema,
        }
        self.send(pack_frame(Kind.LOAD, 0, json.dumps(message).encode()))
        seconds = self._limits.load_seconds
        try:
            async with asyncio.timeout(seconds):
                answer = await self._loaded
        except TimeoutError:
            self.kill("WallClockTime")
            raise FunctionTimedOut(seconds * 1000, f"The module was not loaded within {seconds:g} seconds.") from None
        if self._usage is not None:
            self._usage.set_base(self.memory_mb + _HEAP_MARGIN_MB)
        return answer

    @property
    def pid(self) -> int:
        """The process' number."""
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._shutdown is not None

    @property
    def has_ended(self) -> bool:
        """Whether it is gone."""
        return self._ended.is_set()

    @property
    def is_frozen(self) -> bool:
        """Whether it is stopped, because it has nothing to do."""
        return self._is_frozen

    @property
    def resident_mb(self) -> float:
        """The memory of its own that it had when it was measured last."""
        return self._usage.memory_mb if self._usage else 0.0

    def send(self, data: bytes) -> None:
        """Sends frames; does nothing if it has ended."""
        if self._stdin is not None and not self.is_over:
            self._stdin.write(data)

    # ---- Invocations.

    def begin(self, invocation: Invocation, message: Mapping[str, object]) -> None:
        """Starts an invocation. Its frames go to it until it is over."""
        self._thaw()
        self.measure()
        self._last_invocation += 1
        invocation.attach(self, self._last_invocation)
        self.invocations[invocation.id] = invocation
        self.send(pack_frame(Kind.START, invocation.id, json.dumps(message).encode()))

    def end(self, invocation: Invocation) -> None:
        """Forgets an invocation, and the host calls that it has left open."""
        self.measure()
        self.invocations.pop(invocation.id, None)
        for call in [each for each in self._calls.values() if each.invocation is invocation]:
            call.cancel()
        self.last_used = asyncio.get_running_loop().time()
        if not self.invocations and not self.is_over:
            if self.retired:
                self.kill("EventLoopCompleted")
            else:
                self._freezing = asyncio.get_running_loop().call_later(_FREEZE_AFTER_SECONDS, self._freeze)
        self.on_end()

    def measure(self) -> None:
        """Reads what the process has used, and shares the processor time among the invocations at work. Kills it if it
        has more memory than it may, or one of them has used more time.
        """
        if self._usage is None or self.is_over or not self._usage.read():
            return
        cpu_ms = self._usage.take_cpu_ms()
        for invocation in self.invocations.values():
            invocation.add_usage(cpu_ms / len(self.invocations), self._usage.memory_mb)
        if self._usage.is_over_limit:
            self.kill("Memory")
            return
        for invocation in self.invocations.values():
            if invocation.cpu_ms > self._limits.cpu_ms:
                self.kill("CPUTime", invocation)
                return

    def _freeze(self) -> None:
        # Between invocations nothing of a program runs: no timer and no loop.
        if not self.invocations and not self.is_over:
            self._is_frozen = True
            self._signal(signal.SIGSTOP)

    def _thaw(self) -> None:
        if self._freezing is not None:
            self._freezing.cancel()
            self._freezing = None
        if self._is_frozen:
            self._is_frozen = False
            self._signal(signal.SIGCONT)

    # ---- The end.

    def kill(self, reason: ShutdownReason, blamed: Invocation | None = None, message: str = "") -> None:
        """Kills the process and its group. What it was doing fails: `blamed` for the reason, the others because of it;
        if none is blamed, all for the reason.
        """
        if self.is_over:
            return
        self._shutdown = reason
        self.retired = True
        self._signal(signal.SIGKILL)
        self._fail_all(reason, blamed, message)

    async def wait_ended(self) -> None:
        """Waits until the process is gone."""
        await self._ended.wait()

    def _fail_all(self, reason: ShutdownReason, blamed: Invocation | None, message: str) -> None:
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(_make_load_error(reason, message))
            # It may be that nobody waits any more.
            self._loaded.exception()
        for call in list(self._calls.values()):
            call.cancel()
        for invocation in list(self.invocations.values()):
            if blamed is None or invocation is blamed:
                invocation.stop(reason, message)
            else:
                invocation.stop("EarlyDrop", "")
            self.invocations.pop(invocation.id, None)
        self.on_end()

    def _signal(self, number: int) -> None:
        if self._transport is not None and self._transport.get_returncode() is None:
            try:
                os.killpg(self._transport.get_pid(), number)
            except (ProcessLookupError, PermissionError):
                return

    # ---- What asyncio says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's class of transports has asyncio's methods, but is not derived from it.
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr = (self._stderr + data)[-_STDERR_KEPT:]
            return
        try:
            for kind, stream, payload in self._parser.feed(data):
                if self.is_over:
                    return
                self._take(kind, stream, payload)
        except (BadFrame, ValueError, KeyError, TypeError, RecursionError):
            logger.warning("A function's process was ended: it wrote something else than frames.")
            self.kill("Crashed", message="The function wrote to the pipe of its process.")

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        pass

    def process_exited(self) -> None:
        assert self._transport is not None
        if not self.is_over:
            is_memory = b"out of memory" in self._stderr.lower() or b"allocation failed" in self._stderr.lower()
            self._shutdown = "Memory" if is_memory else "Crashed"
            self.retired = True
            if not is_memory:
                logger.warning("A function's process ended with %s.", self._transport.get_returncode())
            self._fail_all(self._shutdown, None, "")
        if self._usage is not None:
            self._usage.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._transport.close()
        self._ended.set()
        self.on_end()

    # ---- Frames.

    def _take(self, kind: Kind, stream: int, payload: bytes) -> None:
        if kind is Kind.LOADED:
            if self._loaded is None or self._loaded.done():
                raise BadFrame
            self._loaded.set_result(json.loads(payload))
        elif stream & CALL_BIT:
            self._take_of_call(kind, stream, payload)
        elif (invocation := self.invocations.get(stream)) is not None:
            invocation.take(kind, payload)
        elif kind is Kind.LOG and stream == 0:
            for each in self.invocations.values():
                each.take(kind, payload)
        # What an invocation sends after its end is for nobody.

    def _take_of_call(self, kind: Kind, stream: int, payload: bytes) -> None:
        call = self._calls.get(stream)
        if kind is Kind.CALL:
            message = json.loads(payload)
            invocation = self.invocations.get(message["invocation"])
            if call is not None:
                raise BadFrame
            if invocation is None:
                return
            call = HostCall(self, invocation, stream, self._limits)
            self._calls[stream] = call
            call.start(message["member"], message["arguments"], message["acting"], is_open=self._has_room(invocation))
        elif call is not None:
            call.take(kind, payload)

    def _has_room(self, invocation: Invocation) -> bool:
        return sum(each.invocation is invocation for each in self._calls.values()) <= self._limits.open_calls

    def forget_call(self, stream: int) -> None:
        """Forgets a host call that is over."""
        self._calls.pop(stream, None)


def _make_load_error(reason: ShutdownReason, message: str) -> Exception:
    if reason == "Memory":
        return OutOfMemory("The function's module needed more memory than it may have while it was loaded.")
    return FunctionThrew(hide_paths(message) or "The function's process ended while its module was loaded.")


def _do_nothing() -> None:
    pass
