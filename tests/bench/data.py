"""The tables of an app on files: one row against the key-value store, a page against raw SQLite, a million rows, and
files of rows against the csv module and SQLite's driver.
"""

import asyncio
import csv
import http.client
import io
import json
import os
import sqlite3
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.bench.load import build_request, free_port, measure_microseconds, start_server
from tests.bench.processes import cpu_seconds
from tests.bench.rest import KEY

_ROWS = 1_000_000
_USERS = 10_000
_ROUNDS = 5
_PAGE = 100
_ASKED = 400
_IN_FILE = 50_000
"""Rows of the file that is imported and exported."""
_COLUMNS = {
    "id": {"type": "integer", "primaryKey": True},
    "owner": {"type": "text"},
    "kind": {"type": "text"},
    "title": {"type": "text"},
    "price": {"type": "integer"},
    "public": {"type": "boolean"},
}
_SCHEMA = {
    "tables": {
        "items": {"columns": _COLUMNS, "indexes": {"by_owner": {"columns": ["owner", "price"]}}},
        "copies": {"columns": _COLUMNS},
    }
}
_LIST = "SELECT id, owner, kind, title, price, public FROM items ORDER BY id LIMIT 100"


async def run() -> dict[str, float]:
    """Microseconds of CPU for each kind of request and for raw SQLite, and milliseconds of pages by a policy."""
    async with serve_tables() as (pid, port, folder):
        app = await asyncio.to_thread(_make_app, port)
        [file] = Path(folder).rglob(f"{app}.db")
        await asyncio.to_thread(_fill, file)
        costs = [await _measure_costs(pid, port, app, file) for _ in range(_ROUNDS)]
        least = {name: min(cost[name] for cost in costs) for name in costs[0]}
        least |= await asyncio.to_thread(_measure_pages, port, app)
        files = [await asyncio.to_thread(_measure_files, pid, port, app, folder) for _ in range(_ROUNDS)]
        return least | {name: min(cost[name] for cost in files) for name in files[0]}


@asynccontextmanager
async def serve_tables(**settings: str) -> AsyncIterator[tuple[int, int, str]]:
    """Yields the pid, the port and the folder of a server of our own, whose first key is `KEY`."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        environment = {
            **settings,
            "BAOBAB_DATA": folder,
            "BAOBAB_PORT": str(port),
            "BAOBAB_BOOTSTRAP_KEY": KEY,
            "BAOBAB_PLAN": "enterprise",
        }
        async with start_server("-m", "baobab", "serve", port=port, environment=environment) as pid:
            yield pid, port, folder


def _make_app(port: int) -> str:
    app: str = ask(port, "/init", {"name": "bench"})["app_id"]
    ask(port, f"/v1/{app}/schema/apply", {"schema": _SCHEMA})
    ask(port, f"/v1/{app}/rls", {"table_name": "items", "user_column": "owner", "public_read_column": "public"})
    ask(port, f"/v1/{app}/kv/item", {"value": _build_row(5)}, "PUT")
    return app


def ask(port: int, path: str, body: Any, method: str = "POST") -> Any:
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    call = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(call) as answer:
        content = answer.read()
    return json.loads(content) if content else None


def _name_user(number: int) -> str:
    return f"00000000-0000-4000-8000-{number % _USERS:012d}"


def _build_row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "owner": _name_user(number),
        "kind": f"kind{number % 7}",
        "title": f"The title of item {number}",
        "price": number * 7919 // 1000 % 1000,
        "public": number % 5000 == 0,
    }


def _fill(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        rows = (tuple(_build_row(number).values()) for number in range(_ROWS))
        connection.executemany("INSERT INTO items (id, owner, kind, title, price, public) VALUES (?,?,?,?,?,?)", rows)
    connection.close()


async def _measure_costs(pid: int, port: int, app: str, file: Path) -> dict[str, float]:
    def build(path: str) -> Any:
        request = build_request("GET", f"/v1/{app}{path}", port, authorization=f"Bearer {KEY}")
        return lambda _: request

    return {
        "value": await measure_microseconds(pid, port, build("/kv/item"), requests=2000),
        "row": await measure_microseconds(pid, port, build("/items/5"), requests=2000, holds=b"item 5"),
        "page": await measure_microseconds(pid, port, build("/items?order=id"), requests=_ASKED, holds=b"item 99"),
        "raw page": await asyncio.to_thread(_measure_raw, file),
    }


def _measure_raw(file: Path) -> float:
    """The same page read by SQLite's driver and written by json, in this process."""
    connection = sqlite3.connect(file)
    names = list(_COLUMNS)
    before = time.process_time()
    for _ in range(_ASKED):
        json.dumps([dict(zip(names, row, strict=True)) for row in connection.execute(_LIST)]).encode()
    cpu = time.process_time() - before
    connection.close()
    return cpu / _ASKED * 1e6


def _measure_pages(port: int, app: str) -> dict[str, float]:
    """How long a user waits for a page of the rows of their own, or of those that are public, one after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    seconds: list[float] = []
    for number in range(_ASKED):
        query = f"owner=eq.{_name_user(number * 17)}&price=gte.100&order=price.desc&limit=20"
        headers = {"authorization": f"Bearer {KEY}", "x-platform-as-user": _name_user(number * 17)}
        began = time.perf_counter()
        connection.request("GET", f"/v1/{app}/items?{query}", headers=headers)
        answer = connection.getresponse()
        rows = json.loads(answer.read())
        seconds.append(time.perf_counter() - began)
        assert answer.status == 200, rows
        assert rows
    connection.close()
    seconds.sort()
    return {"p50 ms": seconds[len(seconds) // 2] * 1e3, "p99 ms": seconds[len(seconds) * 99 // 100] * 1e3}


def _measure_files(pid: int, port: int, app: str, folder: str) -> dict[str, float]:
    """Microseconds of CPU for each row of a CSV that is imported and exported, and the same without a server."""
    rows = [list(_build_row(number).values()) for number in range(_IN_FILE)]
    text = io.StringIO()
    csv.writer(text).writerows([list(_COLUMNS), *([*row[:5], str(row[5]).lower()] for row in rows)])
    content = text.getvalue().encode()
    costs: dict[str, float] = {}
    for name, method, path, payload in (
        ("import", "POST", "data-import/copies", content),
        ("export", "GET", "data-export/copies", None),
    ):
        before = cpu_seconds(pid)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request(method, f"/v1/{app}/{path}", payload, {"authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        assert len(body.splitlines()) == (1 if name == "import" else _IN_FILE + 1)
        connection.close()
        costs[name] = (cpu_seconds(pid) - before) / _IN_FILE * 1e6
    ask(
        port,
        f"/v1/{app}/schema/apply",
        {"schema": {"tables": {"items": _SCHEMA["tables"]["items"]}, "_drop": ["copies"]}},
    )
    ask(port, f"/v1/{app}/schema/apply", {"schema": _SCHEMA})
    return costs | _measure_raw_files(Path(folder) / "raw.db", content)


def _measure_raw_files(file: Path, content: bytes) -> dict[str, float]:
    """The same file read by csv and written by SQLite's driver, and the other way, in this process."""
    file.unlink(missing_ok=True)
    connection = sqlite3.connect(file)
    connection.execute(
        "CREATE TABLE copies (id INTEGER PRIMARY KEY, owner TEXT, kind TEXT, title TEXT, price INTEGER, public INTEGER)"
    )
    before = time.process_time()
    lines = csv.reader(io.StringIO(content.decode()))
    next(lines)
    with connection:
        connection.executemany(
            "INSERT INTO copies VALUES (?, ?, ?, ?, ?, ?)",
            ((int(row[0]), *row[1:4], int(row[4]), row[5] == "true") for row in lines),
        )
    import_seconds = time.process_time() - before
    before = time.process_time()
    text = io.StringIO()
    csv.writer(text).writerows(connection.execute("SELECT * FROM copies ORDER BY id"))
    text.getvalue().encode()
    export_seconds = time.process_time() - before
    connection.close()
    return {"raw import": import_seconds / _IN_FILE * 1e6, "raw export": export_seconds / _IN_FILE * 1e6}


def report(costs: dict[str, float]) -> list[str]:
    row, page = costs["row"] / costs["value"], costs["page"] / costs["raw page"]
    ours, raw = costs["page"], costs["raw page"]
    import_ratio, export_ratio = costs["import"] / costs["raw import"], costs["export"] / costs["raw export"]
    return [
        f"Tables on files, {_ROWS} rows with an index and a policy, load average {os.getloadavg()[0]:.1f}",
        "",
        f"one row {costs['row']:.0f} us, a value of a key {costs['value']:.0f} us: {row:.2f} (to hold: at most 2)",
        f"{_PAGE} rows {ours:.0f} us, raw SQLite and json {raw:.0f} us: {page:.2f} (to hold: at most 2)",
        f"a row of an import {costs['import']:.1f} us, csv and SQLite {costs['raw import']:.1f} us: {import_ratio:.1f}",
        f"a row of an export {costs['export']:.1f} us, SQLite and csv {costs['raw export']:.1f} us: {export_ratio:.1f}",
        f"a user's page: median {costs['p50 ms']:.1f} ms, p99 {costs['p99 ms']:.1f} ms (to hold: below 10)",
    ]
