"""What the scripts of all Python clients share: where the server is, what is asked, and how they report.

A script prints one line of JSON for each check, with what its client saw; the runner judges.
"""

import asyncio
import inspect
import json
import os
import time
import urllib.request
from collections.abc import Callable
from typing import Any

BASE = os.environ["CLIENT_BASE"]
APP = os.environ["CLIENT_APP"]
KEY = os.environ["CLIENT_KEY"]
OWNER = os.environ["CLIENT_OWNER"]
MODEL = "baobab/echo"
MCP = f"{BASE}/mcp?app_id={APP}"
HEADERS = {"Authorization": f"Bearer {KEY}"}

CHAT = "/say Hello from a client."
FIRST, SECOND = "/say One.", "/say Two."
TOOL = '/call weather {"city": "Oslo"}'
STRUCTURED = 'The weather: {"city": "Oslo", "degrees": 7}'

VALUE = ("kv_get", {"key": "greeting"})
SEARCH = ("search_tools", {"query": "acquire a lock"})
REFUSAL = ("kv_get", {"key": "nowhere"})
APPROVAL = ("kv_delete", {"key": "doomed"})


def weather(city: str) -> str:
    """The weather of a city."""
    return f"Rain in {city}."


def call_of(check: tuple[str, dict[str, str]]) -> str:
    """The command that makes the built-in model call the tool of a check."""
    name, arguments = check
    return f"/call {name} {json.dumps(arguments)}"


def joined(pieces: list[str]) -> str:
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


def run(*checks: Callable[[], Any]) -> None:
    """Make each check, a function with or without `async` that returns what the client saw, and report it."""
    asyncio.run(_run(checks))


async def _run(checks: tuple[Callable[[], Any], ...]) -> None:
    for check in checks:
        try:
            saw = check()
            if inspect.isawaitable(saw):
                saw = await saw
            report = {"check": check.__name__, "saw": saw if isinstance(saw, str) else json.dumps(saw, default=str)}
        except Exception as error:
            report = {"check": check.__name__, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report), flush=True)


def _ask(method: str, path: str) -> Any:
    request = urllib.request.Request(BASE + path, method=method, headers={"Authorization": f"Bearer {OWNER}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
