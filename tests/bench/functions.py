"""Functions: a call of a small one inside the server, beside a bare deno HTTP server that does the same."""

import asyncio
import hashlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp

from baobab.runtime.functions.check import check_source
from baobab.runtime.functions.engine import FunctionEngine
from baobab.runtime.functions.launching import find_deno
from baobab.runtime.functions.limits import EngineLimits
from baobab.runtime.functions.program import FunctionRequest, Program
from tests.runtime.functions.sandboxes import CONTEXT, TableHost

_CALLS, _COLD_CALLS = 500, 8
_CALLERS = (16, 64)
_PAUSE_SECONDS = 1.0
"""Between cold calls: a spare process has started by then."""

_SOURCE = "export default (req: Request) => Response.json({ path: new URL(req.url).pathname });"
_SERVER = """Deno.serve({ port: 0, hostname: '127.0.0.1', onListen: ({ port }) => console.log(port) },
  (req) => Response.json({ path: new URL(req.url).pathname }));"""


class Latency(NamedTuple):
    """Milliseconds."""

    middle: float
    slowest: float
    """The 99th of 100."""


class Figures(NamedTuple):
    """rates: calls a second, by the number of callers."""

    warm: Latency
    peer: Latency
    rates: dict[int, float]
    peer_rates: dict[int, float]
    cold: Latency
    cold_with_spare: Latency
    beside_noise: Latency
    """A warm call while functions of another organisation use all the processor time that they get."""


async def run() -> Figures:
    """Measures all of it, in this process and one after the other."""
    async with _open_engine() as engine, _start_peer() as call_peer:
        program = await _make_program(_SOURCE)

        async def call() -> None:
            await _call(engine, program)

        await call()
        await asyncio.sleep(_PAUSE_SECONDS)
        warm, peer = await _measure(call), await _measure(call_peer)
        rates = {callers: await _measure_rate(call, callers) for callers in _CALLERS}
        peer_rates = {callers: await _measure_rate(call_peer, callers) for callers in _CALLERS}
        noise = [asyncio.ensure_future(_call(engine, await _make_noise(at))) for at in range(4)]
        beside_noise = await _measure(call)
        for each in noise:
            each.cancel()
        await asyncio.gather(*noise, return_exceptions=True)
    return Figures(warm, peer, rates, peer_rates, await _measure_cold(False), await _measure_cold(True), beside_noise)  # noqa: FBT003


def report(figures: Figures) -> Iterator[str]:
    """Renders the figures."""
    yield "functions                     median ms   99 of 100"
    rows = {
        "warm, in the engine": figures.warm,
        "a bare deno server, HTTP": figures.peer,
        "warm, beside 4 endless loops": figures.beside_noise,
        "cold": figures.cold,
        "cold, with a spare process": figures.cold_with_spare,
    }
    for name, latency in rows.items():
        yield f"{name:30}{latency.middle:9.2f}{latency.slowest:12.2f}"
    for callers in _CALLERS:
        rate, peer_rate = figures.rates[callers], figures.peer_rates[callers]
        yield f"{callers} callers: {rate:.0f} calls/s in the engine, {peer_rate:.0f} of the bare server"


@asynccontextmanager
async def _open_engine(*, has_spare: bool = True) -> AsyncIterator[FunctionEngine]:
    engine = FunctionEngine(EngineLimits(has_spare=has_spare, cpu_ms=600_000))
    try:
        yield engine
    finally:
        await engine.close()


async def _make_program(source: str, organization: str = "ours") -> Program:
    checked_source = await check_source(source, "typescript", fetch=None)
    return Program(organization, organization, "f", "typescript", checked_source.code, checked_source.sha256, 64)


async def _make_noise(number: int) -> Program:
    source = f"export default () => {{ for (let at = {number}; ; at++); }}"
    digest = hashlib.sha256(source.encode()).hexdigest()
    return Program("noisy", "theirs", f"noise{number}", "typescript", source, digest, 64)


async def _call(engine: FunctionEngine, program: Program) -> None:
    request = FunctionRequest("GET", "https://shop.example/fn/f", (), None)
    answer = await engine.invoke(
        program, request, CONTEXT, {}, TableHost(), timeout_ms=600_000, on_log=lambda line: None
    )
    async for _ in answer.body:
        pass


@asynccontextmanager
async def _start_peer() -> AsyncIterator[Callable[[], Awaitable[None]]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "server.js")
        file.write_text(_SERVER)
        process = await asyncio.create_subprocess_exec(
            find_deno(), "run", "--no-config", "--allow-net", str(file), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(await process.stdout.readline())}/fn/f"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def call() -> None:
                async with session.get(url) as response:
                    await response.read()

            yield call
        process.kill()
        await process.wait()


async def _measure(call: Callable[[], Awaitable[None]]) -> Latency:
    for _ in range(20):
        await call()
    return _summarise([await _time(call) for _ in range(_CALLS)])


async def _time(call: Callable[[], Awaitable[None]]) -> float:
    begin = time.perf_counter()
    await call()
    return (time.perf_counter() - begin) * 1000


def _summarise(times: list[float]) -> Latency:
    return Latency(statistics.median(times), sorted(times)[int(len(times) * 0.99) - 1] if len(times) > 1 else times[0])


async def _measure_rate(call: Callable[[], Awaitable[None]], callers: int) -> float:
    async def call_often() -> None:
        for _ in range(_CALLS * 2 // callers):
            await call()

    begin = time.perf_counter()
    await asyncio.gather(*(call_often() for _ in range(callers)))
    return _CALLS * 2 // callers * callers / (time.perf_counter() - begin)


async def _measure_cold(has_spare: bool) -> Latency:
    programs = [await _make_program(f"{_SOURCE} // {at}") for at in range(_COLD_CALLS)]
    times = []
    async with _open_engine(has_spare=has_spare) as engine:
        await _call(engine, await _make_program(f"{_SOURCE} // first"))
        for program in programs:
            await asyncio.sleep(_PAUSE_SECONDS)
            begin = time.perf_counter()
            await _call(engine, program)
            times.append((time.perf_counter() - begin) * 1000)
    return _summarise(times)
