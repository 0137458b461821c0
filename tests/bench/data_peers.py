"""The tables of an app beside Parse Server and Directus, on the same Postgres: one row, a page by a filter, an insert.

Each is measured where `.bench` has it: `npm install parse-server` in `.bench/parse-server`
(tests/bench/peers/parse_server.mjs), and `npm install directus pg` in `.bench/directus`, which needs Node.js 22.
"""

import asyncio
import json
import os
import subprocess
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.bench.backends import POSTGRES, Servers
from tests.bench.data import serve_tables
from tests.bench.load import Make, build_request, fetch_body, free_port, measure_microseconds, start_server
from tests.bench.rest import KEY

_BENCH = Path(__file__).parents[2] / ".bench"
PARSE_SERVER, DIRECTUS = _BENCH / "parse-server", _BENCH / "directus"
_ROWS, _KINDS, _PAGE = 2000, 50, 20
_ASKED, _ROUNDS = 1500, 3
_OURS, _PARSE, _DIRECTUS = "baobab", "Parse Server", "Directus"
_TARGETS = {_PARSE: 8, _DIRECTUS: 40}
"""How many times as much CPU as ours a peer is to need."""
_COLUMNS = {
    "id": {"type": "serial", "primaryKey": True},
    "kind": {"type": "text"},
    "title": {"type": "text"},
    "price": {"type": "integer"},
}
_SCHEMA = {"tables": {"items": {"columns": _COLUMNS, "indexes": {"by_kind": {"columns": ["kind", "price"]}}}}}

Costs = dict[str, dict[str, dict[str, float]]]
"""Microseconds of CPU of one request, by product, by what was asked, and by whose: the server's or the database's."""


class _Peer(NamedTuple):
    pid: int
    port: int
    requests: dict[str, tuple[Make, int, bytes]]
    """What is asked, by its name: the request, its status, and what its answer holds."""


async def run(servers: Servers) -> Costs:
    costs = {_OURS: await _measure(servers, _serve_ours(servers))}
    if (PARSE_SERVER / "node_modules/parse-server").exists():
        costs[_PARSE] = await _measure(servers, _serve_parse(servers))
    if (DIRECTUS / "node_modules/directus").exists():
        costs[_DIRECTUS] = await _measure(servers, _serve_directus(servers))
    return costs


async def _measure(servers: Servers, serving: Any) -> dict[str, dict[str, float]]:
    costs: dict[str, dict[str, float]] = {}
    async with serving as peer:
        for name, (make, status, holds) in peer.requests.items():
            rounds = []
            for _ in range(_ROUNDS):
                before = servers.cpu_seconds()
                microseconds = await measure_microseconds(
                    peer.pid, peer.port, make, requests=_ASKED, status=status, holds=holds
                )
                # A tenth more is sent beforehand.
                rounds.append((microseconds, (servers.cpu_seconds() - before) / (_ASKED * 1.1) * 1e6))
            costs[name] = {"server": min(each[0] for each in rounds), "database": min(each[1] for each in rounds)}
    return costs


def _build_row(number: int) -> dict[str, Any]:
    return {"kind": f"kind{number % _KINDS}", "title": f"The title of item {number}", "price": number}


@asynccontextmanager
async def _serve_ours(servers: Servers) -> AsyncIterator[_Peer]:
    async with serve_tables(**servers.settings(POSTGRES)) as (pid, port, _):

        def build(method: str, path: str, body: Any = None) -> bytes:
            content = b"" if body is None else json.dumps(body).encode()
            return build_request(method, path, port, content, authorization=f"Bearer {KEY}")

        app = json.loads(await fetch_body(port, build("POST", "/init", {"name": "bench"})))["app_id"]
        await fetch_body(port, build("POST", f"/v1/{app}/schema/apply", {"schema": _SCHEMA}))
        for start in range(0, _ROWS, 1000):
            rows = [_build_row(number) for number in range(start, start + 1000)]
            await fetch_body(port, build("POST", f"/v1/{app}/items", rows))
        page_path = f"/v1/{app}/items?kind=eq.kind7&price=gte.100&order=price&limit={_PAGE}"
        yield _Peer(
            pid,
            port,
            {
                "one row": (lambda _: build("GET", f"/v1/{app}/items/8"), 200, b"item 7"),
                "a page of 20": (lambda _: build("GET", page_path), 200, b"item 107"),
                "an insert": (lambda number: build("POST", f"/v1/{app}/items", _build_row(number)), 201, b"title"),
            },
        )


@asynccontextmanager
async def _serve_parse(servers: Servers) -> AsyncIterator[_Peer]:
    port = free_port()
    command = (str(Path(__file__).parent / "peers/parse_server.mjs"), str(PARSE_SERVER), str(port))
    url = servers.postgres.create_database("bench_parse_server")
    async with start_server(*command, url, port=port, python="node") as pid:

        def build(method: str, path: str, body: Any = None) -> bytes:
            content = b"" if body is None else json.dumps(body).encode()
            headers = {"x_parse_application_id": "bench", "x_parse_master_key": "master"}
            return build_request(method, f"/parse{path}", port, content, **headers)

        fields = {"kind": {"type": "String"}, "title": {"type": "String"}, "price": {"type": "Number"}}
        schema = {"className": "Item", "fields": fields, "indexes": {"by_kind": {"kind": 1, "price": 1}}}
        await fetch_body(port, build("POST", "/schemas/Item", schema))

        def insert(number: int) -> bytes:
            return build("POST", "/classes/Item", _build_row(number))

        await measure_microseconds(pid, port, insert, requests=_ROWS, status=201)
        payload = json.loads(await fetch_body(port, build("GET", "/classes/Item?where=%7B%22price%22%3A7%7D&limit=1")))
        one = payload["results"][0]["objectId"]
        where = urllib.parse.quote(json.dumps({"kind": "kind7", "price": {"$gte": 100}}))
        page_path = f"/classes/Item?where={where}&order=price&limit={_PAGE}"
        yield _Peer(
            pid,
            port,
            {
                "one row": (lambda _: build("GET", f"/classes/Item/{one}"), 200, b"item 7"),
                "a page of 20": (lambda _: build("GET", page_path), 200, b"item 107"),
                "an insert": (insert, 201, b"objectId"),
            },
        )


@asynccontextmanager
async def _serve_directus(servers: Servers) -> AsyncIterator[_Peer]:
    port, token, url = free_port(), "bench-token", servers.postgres.create_database("bench_directus")
    environment = {
        "DB_CLIENT": "pg",
        "DB_CONNECTION_STRING": url,
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "SECRET": "s" * 32,
        "ADMIN_EMAIL": "bench@example.com",
        "ADMIN_PASSWORD": "bench-password",
        "ADMIN_TOKEN": token,
        "LOG_LEVEL": "error",
        "SERVE_APP": "false",
        "TELEMETRY": "false",
        "NODE_ENV": "production",
    }
    command = str(DIRECTUS / "node_modules/directus/cli.js")
    prepare = ["node", command, "bootstrap"]
    await asyncio.to_thread(subprocess.run, prepare, env={**os.environ, **environment}, check=True, capture_output=True)
    async with start_server(command, "start", port=port, environment=environment, python="node") as pid:

        def build(method: str, path: str, body: Any = None) -> bytes:
            content = b"" if body is None else json.dumps(body).encode()
            return build_request(method, path, port, content, authorization=f"Bearer {token}")

        key = {"is_primary_key": True, "has_auto_increment": True}
        columns = (("kind", "string"), ("title", "string"), ("price", "integer"))
        fields = [{"field": "id", "type": "integer", "schema": key}]
        fields += [{"field": name, "type": kind, "schema": {}} for name, kind in columns]
        await fetch_body(port, build("POST", "/collections", {"collection": "item", "schema": {}, "fields": fields}))
        with psycopg.connect(url) as connection:
            connection.execute("CREATE INDEX by_kind ON item (kind, price)")
        for start in range(0, _ROWS, 100):
            await fetch_body(port, build("POST", "/items/item", [_build_row(start + each) for each in range(100)]))
        page_path = f"/items/item?filter[kind][_eq]=kind7&filter[price][_gte]=100&sort=price&limit={_PAGE}"
        yield _Peer(
            pid,
            port,
            {
                "one row": (lambda _: build("GET", "/items/item/8"), 200, b"item 7"),
                "a page of 20": (lambda _: build("GET", page_path), 200, b"item 107"),
                "an insert": (lambda number: build("POST", "/items/item", _build_row(number)), 200, b"title"),
            },
        )


def report(costs: Costs) -> list[str]:
    lines = [
        "",
        f"Tables on Postgres, load average {os.getloadavg()[0]:.1f}: CPU of server and database, microseconds",
        "",
    ]
    for name, ours in costs[_OURS].items():
        line = f"{name}: {ours['server']:.0f} and {ours['database']:.0f}"
        for peer, target in _TARGETS.items():
            if theirs := costs.get(peer, {}).get(name):
                alone, whole = theirs["server"] / ours["server"], sum(theirs.values()) / sum(ours.values())
                line += f"; {peer} {theirs['server']:.0f} and {theirs['database']:.0f}: {alone:.1f} times ours"
                line += f" (to hold: at least {target}), with the database {whole:.1f}"
        lines.append(line)
    lines += [f"{peer} was not measured: `.bench` does not have it." for peer in _TARGETS if peer not in costs]
    return lines
