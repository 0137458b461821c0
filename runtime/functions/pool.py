"""The processes of all functions: kept warm, shared fairly, and never more than the memory allows."""

import asyncio
from collections.abc import Mapping

from baobab.runtime.functions.bundle import read_bundle
from baobab.runtime.functions.errors import FunctionError, FunctionsBusy, FunctionThrew
from baobab.runtime.functions.limits import EngineLimits
from baobab.runtime.functions.process import FunctionProcess
from baobab.runtime.functions.program import ProcessKey, Program, make_key
from baobab.runtime.functions.stacks import clean_stack, hide_paths

_IDLE_MB = 24.0
"""What a process counts with before it was measured."""

_MEASURE_SECONDS = 0.05


class ProcessPool:
    """Finds or starts the process for an invocation."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._processes: dict[ProcessKey, FunctionProcess] = {}
        self._starting: dict[ProcessKey, asyncio.Task[FunctionProcess]] = {}
        self._all: set[FunctionProcess] = set()
        self._spare: FunctionProcess | None = None
        self._making_spare: asyncio.Task[None] | None = None
        self._keys: dict[FunctionProcess, ProcessKey] = {}
        self._watching: asyncio.Task[None] | None = None
        self._work = asyncio.Event()
        self._is_closed = False

    async def acquire(self, program: Program, env: Mapping[str, str]) -> FunctionProcess:
        """Returns a process that has loaded the program, for one invocation, which must begin at once.

        Raises FunctionsBusy where there is no room, EngineUnavailable, and what loading raises.
        """
        key = make_key(program, env)
        process = self._processes.get(key)
        if process is not None and not process.retired:
            if len(process.invocations) >= self._limits.invocations_of_process:
                raise FunctionsBusy(f"{program.name} is doing as much as it can at once.")
            self._check_memory(key, process)
            self._work.set()
            return process
        starting = self._starting.get(key)
        if starting is None:
            self._check_memory(key, None)
            starting = self._starting[key] = asyncio.ensure_future(self._start(key, program, env))
            starting.add_done_callback(lambda task: self._end_start(key, task))
        process = await asyncio.shield(starting)
        self._work.set()
        return process

    def drop(self, app_id: str, name: str | None = None) -> None:
        """Ends the processes of an app, or of one of its functions; those at work end when they are done."""
        for process, key in list(self._keys.items()):
            if key.app_id == app_id and name in (None, key.name):
                self._retire(process)

    async def close(self) -> None:
        """Kills all processes and waits for their end."""
        self._is_closed = True
        if self._watching is not None:
            self._watching.cancel()
        tasks = [*self._starting.values(), *([self._making_spare] if self._making_spare else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._end_spare()
        for process in list(self._all):
            process.kill("TerminationRequested")
        for process in list(self._all):
            await process.wait_ended()

    @property
    def count(self) -> int:
        """How many processes there are."""
        return len(self._all)

    @property
    def memory_mb(self) -> float:
        """The memory that all processes have together."""
        return sum(each.resident_mb for each in (*self._all, *([self._spare] if self._spare else [])))

    async def _start(self, key: ProcessKey, program: Program, env: Mapping[str, str]) -> FunctionProcess:
        process = await self._take_process(program)
        self._all.add(process)
        self._keys[process] = key
        process.last_used = asyncio.get_running_loop().time()
        process.on_end = lambda: self._forget(process)
        self._watch()
        try:
            answer = await process.load(program, env)
            if answer["error"] is not None:
                error = answer["error"]
                text = hide_paths(f"{error['name']}: {error['message']}")
                raise FunctionThrew(text, clean_stack(str(error["stack"]), f"{program.name}.ts") or None)
            if answer["entry"] is None:
                raise FunctionThrew("The module has no default export that is a function, and no export named handler.")
        except (FunctionError, KeyError, TypeError, asyncio.CancelledError):
            process.kill("EarlyDrop")
            raise
        self._processes[key] = process
        self._make_spare(program.memory_mb)
        return process

    # ---- The spare process.

    async def _take_process(self, program: Program) -> FunctionProcess:
        """Returns the spare process if it fits, and else a new one. Starting deno is most of a cold call."""
        spare, bundle = self._spare, read_bundle(program.code)
        if spare is not None and spare.memory_mb == program.memory_mb and not bundle.modules:
            self._spare = None
            if not spare.is_over:
                return spare
        return await FunctionProcess.start(program.memory_mb, self._limits, bundle)

    def _make_spare(self, memory_mb: int) -> None:
        if not self._limits.has_spare or self._is_closed or (self._making_spare and not self._making_spare.done()):
            return
        if self._spare is not None and self._spare.memory_mb == memory_mb and not self._spare.is_over:
            return
        self._making_spare = asyncio.ensure_future(self._replace_spare(memory_mb))

    async def _replace_spare(self, memory_mb: int) -> None:
        await self._end_spare()
        self._spare = await FunctionProcess.start(memory_mb, self._limits)
        self._spare.last_used = asyncio.get_running_loop().time()

    async def _end_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.kill("EarlyDrop")
            await spare.wait_ended()

    def _end_start(self, key: ProcessKey, task: asyncio.Task[FunctionProcess]) -> None:
        self._starting.pop(key, None)
        if not task.cancelled():
            # Whoever waited has it; perhaps nobody did.
            task.exception()

    def _forget(self, process: FunctionProcess) -> None:
        if process.is_over or process.retired:
            key = self._keys.get(process)
            if key is not None and self._processes.get(key) is process:
                del self._processes[key]
        if process.has_ended:
            self._all.discard(process)
            self._keys.pop(process, None)

    def _retire(self, process: FunctionProcess) -> None:
        process.retired = True
        self._forget(process)
        if not process.invocations and not self._is_loading(process):
            process.kill("EarlyDrop")

    def _is_loading(self, process: FunctionProcess) -> bool:
        return self._keys.get(process) in self._starting

    # ---- Room.

    def _cost(self, process: FunctionProcess) -> float:
        if process.invocations or self._is_loading(process):
            return process.memory_mb + _IDLE_MB
        return process.resident_mb or _IDLE_MB

    def _check_memory(self, key: ProcessKey, process: FunctionProcess | None) -> None:
        """Makes room for a process to work, by ending idle ones. Raises FunctionsBusy."""
        if process is not None and process.invocations:
            return
        cost = key.memory_mb + _IDLE_MB
        busy = [each for each in self._all if not each.is_over and each is not process and self._is_busy(each)]
        own = sum(self._cost(each) for each in busy if self._keys[each].organization_id == key.organization_id)
        total = self._limits.total_memory_mb
        if own and own + cost > total * self._limits.organisation_share:
            raise FunctionsBusy("Your organisation's functions use all the memory that they may use at once.")
        idle = [each for each in self._all if not each.is_over and each is not process and not self._is_busy(each)]
        # The spare process becomes the one that is asked for, or makes room for it.
        missing_mb = sum(self._cost(each) for each in (*busy, *idle)) + cost - total
        too_many = len(busy) + len(idle) + 1 - self._limits.processes
        while (missing_mb > 0 or too_many > 0) and idle:
            victim = self._choose_victim(idle)
            idle.remove(victim)
            missing_mb -= self._cost(victim)
            too_many -= 1
            self._retire(victim)
        if missing_mb > 0 or too_many > 0:
            raise FunctionsBusy("All places for functions are taken.")

    def _is_busy(self, process: FunctionProcess) -> bool:
        return bool(process.invocations) or self._is_loading(process)

    def _choose_victim(self, idle: list[FunctionProcess]) -> FunctionProcess:
        """The one that was used the longest ago, of the organisation with the most idle processes."""
        counts: dict[str, int] = {}
        for each in idle:
            owner = self._keys[each].organization_id
            counts[owner] = counts.get(owner, 0) + 1
        return min(idle, key=lambda each: (-counts[self._keys[each].organization_id], each.last_used))

    # ---- The watch.

    def _watch(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._measure_all())

    async def _measure_all(self) -> None:
        """Measures what is at work, twenty times a second, and ends what has been idle for long."""
        loop = asyncio.get_running_loop()
        while self._all or self._spare:
            working = [each for each in self._all if not each.is_over and not each.is_frozen]
            for process in working:
                process.measure()
            for process in [each for each in self._all if not self._is_busy(each) and not each.is_over]:
                if loop.time() - process.last_used > self._limits.idle_seconds:
                    self._retire(process)
            self._work.clear()
            if self._spare is not None and loop.time() - self._spare.last_used > self._limits.idle_seconds:
                await self._end_spare()
            seconds = _MEASURE_SECONDS if working else self._limits.idle_seconds / 4
            try:
                async with asyncio.timeout(seconds):
                    await (asyncio.Event().wait() if working else self._work.wait())
            except TimeoutError:
                continue
