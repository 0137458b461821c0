"""The parts that the scripts of all Python clients share: where the server is, what is asked, and how they report.

A script prints one line of JSON for each check, with what its client saw; the runner judges.
"""

import asyncio
import inspect
import json
import os
import time
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from pydantic import BaseModel

BASE = os.environ["CLIENT_BASE"]
APP = os.environ["CLIENT_APP"]
KEY = os.environ["CLIENT_KEY"]
OWNER = os.environ["CLIENT_OWNER"]
MODEL = os.environ["CLIENT_MODEL"]
V1 = f"{BASE}/v1/{APP}"
MCP = f"{BASE}/mcp?app_id={APP}"
HEADERS = {"Authorization": f"Bearer {KEY}"}

CHAT = "/say Hello from a client."
FIRST, SECOND = "/say One.", "/say Two."
TOOL = '/call weather {"city": "Oslo"}'
REFUSED = "/refuse temperature"
STRUCTURED = 'The weather: {"city": "Oslo", "degrees": 7}'


class Call(NamedTuple):
    """A call of a tool of the server."""

    tool: str
    arguments: dict[str, str]

    @property
    def command(self) -> str:
        """The command that makes the built-in model call it."""
        return f"/call {self.tool} {json.dumps(self.arguments)}"


VALUE = Call("kv_get", {"key": "greeting"})
SEARCH = Call("search_tools", {"query": "acquire a lock"})
REFUSAL = Call("kv_get", {"key": "nowhere"})
APPROVAL = Call("kv_put", {"key": "doomed", "value": "replaced"})


class Weather(BaseModel):
    city: str
    degrees: int


def weather(city: str) -> str:
    """The weather of a city."""
    return f"Rain in {city}."


def join_pieces(pieces: list[str]) -> str:
    """The text of a stream, which must have come in more than one piece."""
    assert len(pieces) > 1, pieces
    return "".join(pieces)


def approve() -> None:
    """Let the owner approve what waits in the app, and wait until it is done."""
    deadline = time.monotonic() + 30
    for item in _ask("GET", "/v1/approvals?status=pending")["approvals"]:
        if item["app_id"] == APP:
            _ask("POST", f"/v1/approvals/{item['id']}/approve")
            while _ask("GET", f"/v1/approvals/{item['id']}")["approval"]["status"] not in ("executed", "failed"):
                assert time.monotonic() < deadline, "what was approved is not executed"
                time.sleep(0.1)


def run(*checks: Callable[[], Any], call: Callable[[Call], Any] | None = None) -> None:
    """Make each check that is wanted, a function with or without `async` that returns what the client saw; report it.

    call: what the client, or its model, sees of a call of a tool of the server; the checks of these follow from it.
    """
    asyncio.run(_run((*checks, *(_checks_of(call) if call else ()))))


def run_session(open_session: Callable[[], AbstractAsyncContextManager[Any]], **options: Any) -> None:
    """Make the checks of an MCP SDK; connected: a session of it; options: what its `call_tool` takes besides."""

    async def connect() -> list[str]:
        async with open_session() as session:
            tool_list = await session.list_tools()
            return [tool.name for tool in getattr(tool_list, "tools", tool_list)]

    async def call(check: Call) -> str:
        async with open_session() as session:
            answer = await session.call_tool(check.tool, check.arguments, **options)
            return answer.content[0].text

    run(connect, call=call)


def _checks_of(call: Callable[[Call], Any]) -> tuple[Callable[[], Awaitable[str]], ...]:
    async def value() -> str:
        return await _finish(call(VALUE))

    async def search() -> str:
        return await _finish(call(SEARCH))

    async def refusal() -> str:
        return await _finish(call(REFUSAL))

    async def approval() -> str:
        first_answer = await _finish(call(APPROVAL))
        # Some clients hold a stream open meanwhile.
        await asyncio.to_thread(approve)
        return first_answer + await _finish(call(APPROVAL))

    return value, search, refusal, approval


async def _finish(saw: Any) -> Any:
    return await saw if inspect.isawaitable(saw) else saw


async def _run(checks: tuple[Callable[[], Any], ...]) -> None:
    check_names = os.environ["CLIENT_CHECKS"].split(",")
    for check in checks:
        if check.__name__ not in check_names:
            continue
        try:
            saw = await _finish(check())
            report = {"check": check.__name__, "saw": saw if isinstance(saw, str) else json.dumps(saw, default=str)}
        except Exception as error:
            report = {"check": check.__name__, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report), flush=True)


def _ask(method: str, path: str) -> Any:
    request = urllib.request.Request(BASE + path, method=method, headers={"Authorization": f"Bearer {OWNER}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
