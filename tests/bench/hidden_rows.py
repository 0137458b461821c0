"""What a stranger learns of hidden rows by time (`leaks`), and whom expensive filters and policies delay (`fairness`).

Each on a server of our own, with its rows in files. Times in milliseconds.
"""

import asyncio
import json
import random
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tests.bench.data import ask, serve_tables

_ID = {"type": "integer", "primaryKey": True}
_COLUMNS = {"id": _ID, "user_id": {"type": "uuid"}, "public": {"type": "boolean"}, "code": "text", "body": "text"}
_OWNER = "00000000-0000-4000-8000-000000000001"
_ROUNDS = 40
_WORDS = " ".join(f"word{number}" for number in range(22_000))[:199_000]
_FILTERS = {
    "search": "body=wfts.zzz",
    "ten searches": "and=(" + ",".join(f"body.not.wfts.z{number}" for number in range(10)) + ")",
    "ilike": "body=ilike.*zzz*",
}
_ATTACKS = (
    f"/slow?{_FILTERS['ten searches']}",
    "/slow?body=ilike.*" + "a_" * 100 + "zz*",
    "/slow?tags=cs." + "{" + ",".join(["a"] * 1000) + "}",
    "/policed?limit=1",
)
_SECONDS = 12
_ATTACKERS = 6


def get(port: int, path: str) -> int:
    """Returns the status of a request without a credential."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=90) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        return exc.code


def _measure(port: int, path: str) -> float:
    began = time.perf_counter()
    get(port, path)
    return (time.perf_counter() - began) * 1000


async def find_leaks() -> dict[str, tuple[float, float]]:
    """Returns, for each filter, the median times with a right and with a wrong guess of a hidden row's code."""
    async with serve_tables() as (_, port, _folder):
        return await asyncio.to_thread(_compare_guesses, port)


def _compare_guesses(port: int) -> dict[str, tuple[float, float]]:
    app = ask(port, "/init", {"name": "bench"})["app_id"]
    ask(port, f"/v1/{app}/schema/apply", {"schema": {"tables": {"secrets": {"columns": _COLUMNS}}}})
    ask(port, f"/v1/{app}/rls", {"table_name": "secrets", "user_column": "user_id", "public_read_column": "public"})
    hidden_row = {"user_id": _OWNER, "public": False, "code": "S3CR3T", "body": _WORDS}
    ask(port, f"/v1/{app}/secrets", {"id": 1, **hidden_row})
    medians: dict[str, tuple[float, float]] = {}
    for name, text in _FILTERS.items():
        times: dict[str, list[float]] = {"S": [], "X": []}
        for _ in range(_ROUNDS):
            for guess in random.sample("SX", 2):
                times[guess].append(_measure(port, f"/v1/{app}/secrets?select=id&code=like.{guess}*&{text}"))
        medians[name] = (statistics.median(times["S"]), statistics.median(times["X"]))
    return medians


def report_leaks(found: dict[str, tuple[float, float]]) -> Iterator[str]:
    for name, (hit, miss) in found.items():
        yield f"A hidden row and {name}: {hit:.1f} if the guess is right, {miss:.1f} if it is wrong"


async def find_delays() -> dict[str, tuple[float, float]]:
    """Returns, for whoever asks beside the attackers, the median and the longest time."""
    async with serve_tables() as (_, port, _folder):
        return await asyncio.to_thread(_attack, port)


def _attack(port: int) -> dict[str, tuple[float, float]]:
    app, other = (ask(port, "/init", {"name": name})["app_id"] for name in ("bench", "other"))
    slow = {"columns": {**_COLUMNS, "tags": "text[]"}}
    ask(port, f"/v1/{app}/schema/apply", {"schema": {"tables": {"slow": slow, "policed": slow, "plain": slow}}})
    ask(port, f"/v1/{other}/schema/apply", {"schema": {"tables": {"plain": slow}}})
    costly = " or ".join(f"lower(body) like '%z{number}%'" for number in range(60))
    policies = ((app, "slow", "true"), (app, "plain", "public"), (other, "plain", "public"), (app, "policed", costly))
    for owner, table, text in policies:
        body: dict[str, Any] = {"table_name": table, "policy_name": "p", "command": "SELECT", "using_expression": text}
        ask(port, f"/v1/{owner}/rls/policies", body)
    for number in range(12):
        row = {"id": number, "public": True, "code": "dos", "body": _WORDS + "a" * 600_000, "tags": ["b"] * 9990}
        for owner, table in ((app, "slow"), (app, "policed")):
            ask(port, f"/v1/{owner}/{table}", row)
        for owner in (app, other):
            ask(port, f"/v1/{owner}/plain", {"id": number, "public": True, "code": "x"})
    ends_at = time.monotonic() + _SECONDS
    times: dict[str, list[float]] = {"/health": [], "its own app": [], "its own app, filtered": [], "another app": []}
    paths = (
        "/health",
        f"/v1/{app}/plain?limit=5",
        f"/v1/{app}/plain?limit=5&code=like.x*",
        f"/v1/{other}/plain?limit=5",
    )

    def attack(number: int) -> None:
        while time.monotonic() < ends_at:
            with suppress(OSError, json.JSONDecodeError):
                get(port, f"/v1/{app}{_ATTACKS[number % len(_ATTACKS)]}")

    def watch(name: str, path: str) -> None:
        while time.monotonic() < ends_at:
            times[name].append(_measure(port, path))
            time.sleep(0.02)

    with ThreadPoolExecutor(_ATTACKERS + len(paths)) as threads:
        for number in range(_ATTACKERS):
            threads.submit(attack, number)
        for name, path in zip(times, paths, strict=True):
            threads.submit(watch, name, path)
    return {name: (statistics.median(each), max(each)) for name, each in times.items()}


def report_delays(found: dict[str, tuple[float, float]]) -> Iterator[str]:
    for name, (median, longest) in found.items():
        yield f"Beside {_ATTACKERS} expensive reads, {name}: median {median:.1f}, longest {longest:.0f}"


MEASUREMENTS: tuple[tuple[str, Any, Any], ...] = (
    ("leaks", find_leaks, report_leaks),
    ("fairness", find_delays, report_delays),
)
