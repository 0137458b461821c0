"""Triggers: how late hours start, what a flood of events costs other apps, and what a trigger costs writes.

The installation, the receiver of webhooks and whoever writes are one process, on files.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp.web
import httpx

from baobab.server import Server
from baobab.settings import load_settings
from tests.bench.size import size
from tests.conftest import ADDRESS, KEY, Baobab
from tests.people import create_person

_APPS, _HOURS_OF_APP = size(10, 1), size(100, 5)
_FLOOD, _AT_ONCE = size(10_000, 200), 1000
_PROBES, _WRITES = size(10, 2), size(300, 5)
_MINUTE = 60.0
_PATIENCE_SECONDS = 60.0
_TABLE = {"columns": {"id": {"type": "serial", "primaryKey": True}, "title": "text"}}


class Receiver:
    """Takes webhooks, and knows when each came."""

    def __init__(self) -> None:
        self.url = ""
        self.arrivals: dict[str, list[float]] = {}

    async def take(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        event = await request.json()
        self.arrivals.setdefault(f"{request.path} {event['id']}", []).append(time.time())
        return aiohttp.web.Response()

    async def wait_for(self, count: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not count():
                await asyncio.sleep(0.005)


class Figures(NamedTuple):
    """lateness: seconds after the minute, of each hour's webhook. alone, beside: seconds from the commit of a row to
    the webhook about it. writes: milliseconds of one write, by what waits for it.
    """

    lateness: Sequence[float]
    hours: int
    repeated: int
    alone: Sequence[float]
    beside: Sequence[float]
    beside_same: Sequence[float]
    flood_seconds: float
    words: str
    writes: dict[str, float]


async def run() -> Figures:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with _start_receiver() as receiver, _open_installation(Path(folder)) as baobab:
            writes = await _measure_writes(baobab, receiver)
            lateness, repeated = await _measure_hours(baobab, receiver)
            flood = await _measure_flood(baobab, receiver)
    return Figures(lateness, _APPS * _HOURS_OF_APP, repeated, *flood, writes)


@asynccontextmanager
async def _open_installation(folder: Path) -> AsyncIterator[Baobab]:
    environment = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
    server = Server(load_settings(environment, data=folder))
    async with server.open() as application:
        transport = httpx.ASGITransport(app=server)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            yield Baobab(application, client)


@asynccontextmanager
async def _start_receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    application = aiohttp.web.Application()
    application.router.add_post("/{path:.*}", receiver.take)
    runner = aiohttp.web.AppRunner(application)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def _ask(baobab: Baobab, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
    answer = await baobab.client.request(method, path, json=body, headers=headers or baobab.owner)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


async def _create_app(baobab: Baobab, name: str, headers: dict[str, str] | None = None) -> str:
    app: str = (await _ask(baobab, "POST", "/init", {"name": name}, headers))["app_id"]
    await _ask(baobab, "POST", f"/v1/{app}/schema/apply", {"schema": {"tables": {"notes": _TABLE}}}, headers)
    return app


async def _measure_hours(baobab: Baobab, receiver: Receiver) -> tuple[list[float], int]:
    """Returns how late each hour of the same minute was, and how many came more than once."""
    hour = {"event": "schedule", "schedule": "* * * * *"}
    apps = [await _create_app(baobab, f"hours-{number}") for number in range(_APPS)]
    # So that none of them fires before all are there.
    for app in apps:
        for number in range(_HOURS_OF_APP):
            body = {**hour, "webhook": f"{receiver.url}/hours/{app}/{number}"}
            await _ask(baobab, "PUT", f"/v1/{app}/triggers/h{number}", body)
    minute = (time.time() // _MINUTE + 1) * _MINUTE
    mark = f"schedule:{time.strftime('%Y-%m-%dT%H:%M:00+00:00', time.gmtime(minute))}"

    def list_arrivals() -> list[list[float]]:
        arrivals = receiver.arrivals.items()
        return [times for name, times in arrivals if name.startswith("/hours/") and name.endswith(mark)]

    await asyncio.sleep(minute - time.time())
    await receiver.wait_for(lambda: len(list_arrivals()) >= _APPS * _HOURS_OF_APP)
    for app in apps:
        for number in range(_HOURS_OF_APP):
            await _ask(baobab, "POST", f"/v1/{app}/triggers/h{number}/pause")
    return [times[0] - minute for times in list_arrivals()], sum(len(times) > 1 for times in list_arrivals())


async def _measure_flood(
    baobab: Baobab, receiver: Receiver
) -> tuple[list[float], list[float], list[float], float, str]:
    """Returns how long a row takes to its webhook alone and while another app causes a flood, of another organisation
    and of the same; how long the flood took to write; and what a delivery of the flood says.
    """
    person = await create_person(baobab, "quiet")
    quiet = await _create_app(baobab, "quiet", person.headers)
    sibling, loud = await _create_app(baobab, "sibling"), await _create_app(baobab, "loud")
    trigger = {"event": "row.inserted", "table": "notes"}
    for app, headers in ((quiet, person.headers), (sibling, None), (loud, None)):
        await _ask(
            baobab, "PUT", f"/v1/{app}/triggers/t", {**trigger, "webhook": f"{receiver.url}/flood/{app}"}, headers
        )
    alone = await _probe(baobab, receiver, quiet, person.headers)
    began_at = time.perf_counter()
    for _ in range(0, _FLOOD, _AT_ONCE):
        rows = [{"title": "x"} for _ in range(min(_AT_ONCE, _FLOOD))]
        await _ask(baobab, "POST", f"/v1/{loud}/notes", rows)
    seconds = time.perf_counter() - began_at
    beside = await _probe(baobab, receiver, quiet, person.headers)
    beside_same = await _probe(baobab, receiver, sibling, None)
    page = await _ask(baobab, "GET", f"/v1/{loud}/triggers/t/deliveries?status=pending&limit=100")
    words = next((each["error"] for each in page["deliveries"] if each["error"]), "none waits")
    return alone, beside, beside_same, seconds, words


async def _probe(baobab: Baobab, receiver: Receiver, app: str, headers: dict[str, str] | None) -> list[float]:
    """Returns the seconds from a row to the webhook about it."""
    place = f"/flood/{app} "

    def count() -> int:
        return sum(name.startswith(place) for name in receiver.arrivals)

    seconds: list[float] = []
    for _ in range(_PROBES):
        before = count()
        await _ask(baobab, "POST", f"/v1/{app}/notes", {"title": "x"}, headers)
        committed_at = time.time()
        await receiver.wait_for(lambda before=before: count() > before)  # type: ignore[misc]
        seconds.append(max(times[0] for name, times in receiver.arrivals.items() if name.startswith(place)))
        seconds[-1] -= committed_at
    return seconds


async def _measure_writes(baobab: Baobab, receiver: Receiver) -> dict[str, float]:
    """Returns the median of a write of a row and of a key in milliseconds, by what waits for it."""
    app = await _create_app(baobab, "writes")

    async def put() -> None:
        await _ask(baobab, "PUT", f"/v1/{app}/kv/cart:1", {"value": 1})

    async def insert() -> None:
        await _ask(baobab, "POST", f"/v1/{app}/notes", {"title": "x"})

    medians = {"a key, no trigger": await _time(put), "a row, no trigger": await _time(insert)}
    never = {"==": [{"var": "event.id"}, "never"]}
    for name, body in (
        ("a key, others are awaited", {"event": "key.changed", "prefix": "order:"}),
        ("a key that is awaited", {"event": "key.changed", "prefix": "cart:", "filter": never}),
    ):
        await _ask(baobab, "PUT", f"/v1/{app}/triggers/t", {**body, "webhook": f"{receiver.url}/writes"})
        medians[name] = await _time(put)
    await _ask(
        baobab,
        "PUT",
        f"/v1/{app}/triggers/t",
        {"event": "row.inserted", "table": "notes", "filter": never, "webhook": f"{receiver.url}/writes"},
    )
    medians["a row of a table that is awaited"] = await _time(insert)
    await _ask(baobab, "POST", f"/v1/{app}/triggers/t/pause")
    return medians


async def _time(write: Callable[[], Awaitable[None]]) -> float:
    seconds: list[float] = []
    for _ in range(_WRITES):
        began_at = time.perf_counter()
        await write()
        seconds.append(time.perf_counter() - began_at)
    return statistics.median(seconds) * 1000


def report(figures: Figures) -> Iterator[str]:
    """Renders the figures."""
    yield "| | median | slowest |"
    yield "|---|---|---|"
    hours = f"{figures.hours} schedules of one minute: seconds after it ({figures.repeated} started twice)"
    rows = {
        hours: figures.lateness,
        "a row to its webhook, seconds": figures.alone,
        "the same while another organisation's app causes a flood": figures.beside,
        "the same while another app of the organisation does": figures.beside_same,
    }
    for name, seconds in rows.items():
        yield f"| {name} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |"
    yield ""
    flood = f"{_FLOOD} rows with a trigger in {figures.flood_seconds:.1f} s"
    yield f"The flood: {flood}. A delivery of it says: {json.dumps(figures.words)}"
    yield ""
    yield "| A write over REST | median ms |"
    yield "|---|---|"
    for name, median in figures.writes.items():
        yield f"| {name} | {median:.2f} |"
