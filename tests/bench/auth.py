"""Sign-in of an app's users: login, refresh and verification of a token; also with a million sessions.

Beside it: a plain FastAPI application with the same libraries and, where `.bench/better-auth` has it, Better Auth.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from argon2 import PasswordHasher
from joserfc.jwk import KeySet

from baobab.tools.core.auth.signed_tokens import read_claims
from tests.bench.backends import POSTGRES, Servers
from tests.bench.callers import Caller, run_callers
from tests.bench.load import build_request, check_answer, fetch_body, free_port, measure_microseconds, start_server
from tests.bench.processes import cpu_seconds
from tests.bench.rest import KEY

PASSWORD, EMAIL = "correct Horse 7!", "u1@example.com"
USERS, SESSIONS_EACH = 100_000, 10
BETTER_AUTH = Path(__file__).parents[2] / ".bench/better-auth"
_LOGINS, _REFRESHES, _VERIFIED, _CALLERS = 100, 400, 3000, 8
_ROUNDS = 3

Costs = dict[str, dict[str, float]]
"""Microseconds of server CPU for one request, by server and by what was asked."""


def run(servers: Servers) -> Costs:
    return asyncio.run(_run(servers))


async def _run(servers: Servers) -> Costs:
    costs: Costs = {}
    with tempfile.TemporaryDirectory() as folder:
        costs["baobab, files"] = await _measure_ours({"BAOBAB_DATA": f"{folder}/ours"}, None)
        settings = servers.settings(POSTGRES)
        large = {"BAOBAB_DATA": f"{folder}/large", **settings}
        costs["baobab, 1M sessions"] = await _measure_ours(large, settings["BAOBAB_DATABASE_URL"])
        port = free_port()
        plain = ("-m", "tests.bench.peers.plain_auth", f"{folder}/plain.db", str(port))
        async with start_server(*plain, port=port) as pid:
            await fetch_body(port, _build("POST", "/signup", port, {"email": EMAIL, "password": PASSWORD}))
            costs["plain FastAPI"] = await _measure(pid, port, "/login", "/refresh", "/me")
    if (BETTER_AUTH / "node_modules/better-auth").exists():
        costs["Better Auth"] = await _measure_better_auth()
    return costs


async def _measure_ours(environment: dict[str, str], url: str | None) -> dict[str, float]:
    """url: of the database that gets many users first; None for one user."""
    port = free_port()
    # Every request comes from an address of its own, as from so many people: the limits of addresses are not measured.
    settings = {"BAOBAB_PORT": str(port), "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "enterprise"}
    settings |= {"BAOBAB_TRUSTED_PROXIES": "127.0.0.1"}
    async with start_server("-m", "baobab", "serve", port=port, environment={**environment, **settings}) as pid:
        body = await fetch_body(port, _build("POST", "/init", port, {"name": "bench"}, authorization=f"Bearer {KEY}"))
        app = json.loads(body)["app_id"]
        if url is None:
            await fetch_body(port, _build("POST", f"/auth/{app}/signup", port, {"email": EMAIL, "password": PASSWORD}))
        else:
            await asyncio.to_thread(_insert_users, url, app)
        before = await asyncio.to_thread(_count_scans, url)
        costs = await _measure(pid, port, f"/auth/{app}/login", f"/auth/{app}/refresh", f"/auth/{app}/me")
        search_path = f"/v1/{app}/admin/auth/users?search=u9999"

        def find(_: int) -> bytes:
            return _build("GET", search_path, port, authorization=f"Bearer {KEY}")

        costs["find a user"] = await measure_microseconds(pid, port, find, requests=300, connections=_CALLERS)
        costs["whole tables read"] = await asyncio.to_thread(_count_scans, url) - before
        costs["verify alone"] = await _verify_alone(port, app)
    return costs


async def _measure(pid: int, port: int, login: str, refresh: str, me: str) -> dict[str, float]:
    body = {"email": EMAIL, "password": PASSWORD}

    def log_in(number: int) -> bytes:
        return _build("POST", login, port, body, number)

    costs = {"login": await measure_microseconds(pid, port, log_in, requests=_LOGINS, connections=_CALLERS)}
    signed_in = [json.loads(await fetch_body(port, log_in(10_000 + number))) for number in range(_CALLERS)]
    before = cpu_seconds(pid)
    await run_callers(port, [_refresh(port, refresh, one, at) for at, one in enumerate(signed_in)])
    costs["refresh"] = (cpu_seconds(pid) - before) / _REFRESHES * 1e6
    token = signed_in[0]["access_token"]

    def read(number: int) -> bytes:
        return _build("GET", me, port, None, number, authorization=f"Bearer {token}")

    rounds = [await measure_microseconds(pid, port, read, requests=_VERIFIED) for _ in range(_ROUNDS)]
    return {**costs, "request with a token": min(rounds)}


def _refresh(port: int, path: str, signed_in: Any, caller: int) -> Caller:
    """Exchanges a refresh token, and what comes of it, many times."""
    token = signed_in["refresh_token"]
    for number in range(_REFRESHES // _CALLERS):
        answer = yield _build("POST", path, port, {"refresh_token": token}, caller * 10_000 + number)
        check_answer(answer, 200, b"refresh_token")
        token = json.loads(answer.body)["refresh_token"]


async def _verify_alone(port: int, app: str) -> float:
    """Microseconds of CPU for the verification of one token, without a request around it: the least of some rounds."""
    body = {"email": EMAIL, "password": PASSWORD}
    signed_in = await fetch_body(port, _build("POST", f"/auth/{app}/login", port, body, 777))
    published_body = await fetch_body(port, _build("GET", f"/auth/{app}/.well-known/jwks.json", port))
    keys, token = KeySet.import_key_set(json.loads(published_body)), json.loads(signed_in)["access_token"]
    rounds = []
    for _ in range(10):
        began = time.process_time()
        for _ in range(500):
            read_claims(token, keys, ["RS256"])
        rounds.append((time.process_time() - began) / 500 * 1e6)
    return min(rounds)


async def _measure_better_auth() -> dict[str, float]:
    """Its users are in memory, and its sessions are no tokens that anybody else could verify."""
    port, body = free_port(), {"email": EMAIL, "password": PASSWORD, "name": "Bench"}
    server = str(Path(__file__).parent / "peers/better_auth.mjs")
    async with start_server(server, str(BETTER_AUTH), str(port), port=port, python="node") as pid:
        await fetch_body(port, _build("POST", "/api/auth/sign-up/email", port, body))

        def log_in(number: int) -> bytes:
            return _build("POST", "/api/auth/sign-in/email", port, body, number)

        login = await measure_microseconds(pid, port, log_in, requests=_LOGINS, connections=_CALLERS)
        token = json.loads(await fetch_body(port, log_in(1)))["token"]

        def read(number: int) -> bytes:
            return _build("GET", "/api/auth/get-session", port, None, number, authorization=f"Bearer {token}")

        rounds = [
            await measure_microseconds(pid, port, read, requests=_VERIFIED, holds=EMAIL.encode())
            for _ in range(_ROUNDS)
        ]
    return {"login": login, "request with a token": min(rounds)}


def _build(method: str, path: str, port: int, body: Any = None, caller: int = 0, **headers: str) -> bytes:
    address = f"10.{caller // 65536 % 256}.{caller // 256 % 256}.{caller % 256}"
    content = b"" if body is None else json.dumps(body).encode()
    return build_request(method, path, port, content, x_forwarded_for=address, **headers)


def _insert_users(url: str, app: str) -> None:
    """Inserts many users, of whom each has some sessions."""
    password_hash = PasswordHasher().hash(PASSWORD)
    with psycopg.connect(url.replace("postgresql+psycopg", "postgresql"), autocommit=True) as connection:
        connection.execute(
            "INSERT INTO users (app_id, id, email, provider, password_hash, created_at, last_sign_in_at) "
            "SELECT %s, 'user-' || n, 'u' || n || '@example.com', 'email', %s, now() - n * interval '1 s', now() "
            "FROM generate_series(1, %s) AS n",
            (app, password_hash, USERS),
        )
        connection.execute(
            "INSERT INTO user_sessions (app_id, id, user_id, generation, method, created_at, refreshed_at, expires_at) "
            "SELECT %s, gen_random_uuid()::text, 'user-' || (n %% %s + 1), 0, 'email', now(), now(), "
            "now() + interval '7 d' FROM generate_series(1, %s) AS n",
            (app, USERS, USERS * SESSIONS_EACH),
        )
        connection.execute("VACUUM ANALYZE users")
        connection.execute("VACUUM ANALYZE user_sessions")


def _count_scans(url: str | None) -> float:
    """How often the whole table of users or sessions was read, as Postgres counts it."""
    if url is None:
        return 0
    # Its counts arrive a second late.
    time.sleep(2)
    with psycopg.connect(url.replace("postgresql+psycopg", "postgresql")) as connection:
        row = connection.execute(
            "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN ('users', 'user_sessions')"
        ).fetchone()
    assert row is not None
    return float(row[0])


def report(costs: Costs) -> Iterator[str]:
    names = ("login", "refresh", "request with a token", "find a user", "verify alone", "whole tables read")
    yield f"sign-in: microseconds of server CPU for one request; {USERS} users and {USERS * SESSIONS_EACH} sessions"
    yield f"{'':22}" + "".join(f"{name:>22}" for name in names)
    for server, server_costs in costs.items():
        yield f"{server:22}" + "".join(
            f"{server_costs[name]:22.0f}" if name in server_costs else f"{'-':>22}" for name in names
        )
    yield f"verification of a token: {costs['baobab, files']['verify alone']:.0f} us (to hold: at most 60)"
    scans = costs["baobab, 1M sessions"]["whole tables read"]
    yield f"whole tables read with a million sessions: {scans:.0f} (to hold: 0)"
