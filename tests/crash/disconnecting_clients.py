"""Clients that ask for all kinds of things and leave before they are answered, and others that stay."""

import asyncio
import contextlib
import itertools
import json
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import OWNER, create_app
from tests.mcp_server.mcp_requests import MODERN, build_message

LONGEST_STAY = 0.006
"""Seconds from the last byte that a leaver sends to its leaving, unless it waits for the first of its answer."""
_LONGEST_PAD = 60_000
"""Characters of a value: it is sent in several pieces."""
_NAMES = 12
"""Of apps, agents and keys each: a name that is taken is refused, which is an answer, too."""
_REFUSED = (404, 409, 428, 429)
"""Because it is not there yet, is over or taken, waits for a person, or comes after too many others of a minute."""
_AGENT = {"dedupe_window_seconds": 0}
_HELLO = {"messages": [{"role": "user", "content": "Hello! " * 40}]}
_MODELS = ("openai/gpt-4o-mini", "baobab/echo")
# A reset, in place of a good-bye.
_AT_ONCE = struct.pack("ii", 1, 0)


def _build_graph(*steps: dict[str, Any]) -> dict[str, Any]:
    names = [f"step {number}" for number in range(len(steps))] + ["done"]
    nodes = dict(zip(names, (*steps, {"type": "end", "output_template": "{{ input }}"}), strict=True))
    edges = [{"from": one, "to": other} for one, other in itertools.pairwise(names)]
    tools = {"builtin": ["kv_get", "kv_incr"]}
    return {"spec_version": 1, "entry": names[0], "tools": tools, "nodes": nodes, "edges": edges}


def _tool_node(name: str, key: str) -> dict[str, Any]:
    return {"type": "tool", "tool_ref": {"source": "builtin", "name": name}, "args_template": {"key": key}}


_READ, _THINK = _tool_node("kv_get", "seed"), {"type": "llm", "model": _MODELS[0], "input_template": "Hello!"}
_THINK["output_key"] = "thought"
# What writes waits for a person.
AGENTS = {
    "reader": _build_graph(_READ, _READ),
    "asker": _build_graph(_READ, _tool_node("kv_incr", "raised"), _READ),
    "thinker": _build_graph(_THINK, _READ, _THINK),
}


@dataclass
class HttpRequest:
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    endless: bool = False
    """Whether its answer ends by itself."""
    proposes: bool = False
    """Whether it is to wait for a person."""


@dataclass
class ClientCrowd:
    """The app that all clients use, and the requests that they can send."""

    session: aiohttp.ClientSession
    server: ServerProcess
    app: str
    dice: random.Random
    agent_key: dict[str, str] = field(default_factory=dict)
    runs: list[tuple[str, str]] = field(default_factory=list)
    """Agent and id of each run that somebody who stayed has started."""
    questions: list[tuple[str, str]] = field(default_factory=list)
    """Run and token of what runs have asked."""
    approval_ids: list[str] = field(default_factory=list)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Of those who stayed, by kind and status."""
    _number: int = 0

    @classmethod
    async def create(cls, session: aiohttp.ClientSession, server: ServerProcess, dice: random.Random) -> "ClientCrowd":
        clients = cls(session, server, await create_app(session, server, "crowd"), dice)
        answer = await clients.ask(HttpRequest("POST", "/api-keys", {"name": "agent", "approval": "write"}))
        clients.agent_key = {"Authorization": f"Bearer {answer['key']}"}
        await clients.ask(HttpRequest("PUT", f"/v1/{clients.app}/kv/seed", {"value": 7}))
        for name, graph in AGENTS.items():
            await clients.ask(
                HttpRequest("POST", f"/v1/{clients.app}/agents", {"name": name, "graph_spec": graph, **_AGENT})
            )
        # One of each that later ones can be about.
        for _ in range(3):
            for kind in ("run", "proposal"):
                await clients.request_and_wait(kind)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not clients.questions:
                await clients.read_questions()
        return clients

    async def ask(self, request: HttpRequest) -> Any:
        """An answer that is none but a success."""
        while True:
            async with self._send(request) as answer:
                text = await answer.text()
            if answer.status != 429:
                break
            await asyncio.sleep(int(answer.headers["retry-after"]))
        assert answer.status < 300, f"{request}: {answer.status} {text}"
        return json.loads(text) if text.startswith(("{", "[")) else text

    async def request_and_wait(self, kind: str) -> None:
        """Ask for something and wait for the answer, which must be one of a server that is well."""
        request = KINDS[kind](self)
        async with self._send(request) as answer:
            if request.endless:
                await answer.content.readany()
                text = ""
            else:
                text = await answer.text()
            well = answer.status < 300 or answer.status in _REFUSED
            assert well, f"{kind}: {answer.status} {text}\n{self.server.log_text[-4000:]}"
            assert '"isError":true' not in text, text
            self.answers[kind, answer.status] += 1
            # A key whose hundred calls wait for a person is refused another one.
            if request.proposes and "approval_id" in (body := json.loads(text)):
                self.approval_ids.append(body["approval_id"])
            elif kind == "run" and answer.status == 201:
                self.runs.append((request.path.split("/")[4], json.loads(text)["run_id"]))

    async def request_and_leave(self, kind: str) -> None:
        """Ask for something and be gone: in the middle of asking, a little later, or when the answer begins."""
        request, dice, where = KINDS[kind](self), self.dice, urlsplit(self.server.address)
        request_bytes, way = (
            _encode_request(request, where.netloc),
            dice.choice(["asking", "asked", "asked", "answered"]),
        )
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        with contextlib.suppress(OSError):
            writer.write(request_bytes[: dice.randrange(len(request_bytes))] if way == "asking" else request_bytes)
            if way == "answered":
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await reader.read(dice.choice([1, 200, 4096]))
            await asyncio.sleep(dice.random() * LONGEST_STAY)
        if dice.random() < 0.5:
            line: socket.socket = writer.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        writer.transport.abort()

    async def read_questions(self) -> None:
        """Learn what the runs have asked that are known."""
        for agent, run_id in self.runs:
            if agent != "asker" or any(run_id == asking_id for asking_id, _ in self.questions):
                continue
            answer = await self.ask(HttpRequest("GET", f"/v1/{self.app}/agents/{agent}/runs/{run_id}/events.json"))
            tokens = [each["payload"]["approval_token"] for each in answer["events"] if each["type"] == "run_paused"]
            self.questions += [(run_id, token) for token in tokens]

    async def list_runs(self, status: str) -> list[str]:
        """The newest runs that stand so."""
        run_names = []
        for agent in AGENTS:
            answer = await self.ask(HttpRequest("GET", f"/v1/{self.app}/agents/{agent}/runs?status={status}"))
            run_names += [f"{agent} {run['id']}" for run in answer["runs"]]
        return run_names

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def random_run_path(self) -> str:
        agent, run_id = self.dice.choice(self.runs[-8:])
        return f"/v1/{self.app}/agents/{agent}/runs/{run_id}"

    def _send(self, request: HttpRequest) -> Any:
        url = self.server.address + request.path
        return self.session.request(request.method, url, json=request.body, headers={**OWNER, **request.headers})


def _encode_request(request: HttpRequest, host: str) -> bytes:
    body = b"" if request.body is None else json.dumps(request.body).encode()
    headers = {"host": host, **OWNER, "content-type": "application/json", **request.headers}
    lines = [f"{request.method} {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def _random_value(clients: ClientCrowd) -> dict[str, Any]:
    return {"value": {"at": clients.next_number(), "pad": "x" * clients.dice.randrange(_LONGEST_PAD)}}


def _random_key(clients: ClientCrowd) -> str:
    return f"k{clients.dice.randrange(20)}"


def _batch_request(clients: ClientCrowd) -> HttpRequest:
    ops = [
        {"op": "put", "key": _random_key(clients), **_random_value(clients)},
        {"op": "get", "key": _random_key(clients)},
    ]
    return HttpRequest("POST", f"/v1/{clients.app}/kv/_batch", {"ops": ops})


def _run_request(clients: ClientCrowd) -> HttpRequest:
    agent = clients.dice.choice(["reader", "asker", "asker", "thinker"]) if clients.runs else "asker"
    return HttpRequest("POST", f"/v1/{clients.app}/agents/{agent}/runs", {"input": {"number": clients.next_number()}})


def _resume_request(clients: ClientCrowd) -> HttpRequest:
    if not clients.questions:
        return HttpRequest("GET", clients.random_run_path())
    run_id, token = clients.dice.choice(clients.questions[-8:])
    path = f"/v1/{clients.app}/agents/asker/runs/{run_id}/resume"
    return HttpRequest("POST", path, {"approval_token": token, "approved": True})


def _agent_request(clients: ClientCrowd) -> HttpRequest:
    name = f"another-{clients.dice.randrange(_NAMES)}"
    return HttpRequest("POST", f"/v1/{clients.app}/agents", {"name": name, "graph_spec": AGENTS["asker"], **_AGENT})


def _chat_request(clients: ClientCrowd, *, stream: bool) -> HttpRequest:
    body = {"model": clients.dice.choice(_MODELS), "stream": stream, **_HELLO}
    return HttpRequest("POST", f"/v1/{clients.app}/chat/completions", body)


def _proposal_request(clients: ClientCrowd) -> HttpRequest:
    path = f"/v1/{clients.app}/kv/proposed/incr"
    return HttpRequest("POST", path, {"by": clients.next_number()}, clients.agent_key, proposes=True)


def _decision_request(clients: ClientCrowd) -> HttpRequest:
    return HttpRequest("POST", f"/v1/approvals/{clients.dice.choice(clients.approval_ids[-8:])}/approve", {})


def _budget_request(clients: ClientCrowd) -> HttpRequest:
    return HttpRequest(
        "PUT", f"/dashboard/billing/budgets/app/{clients.app}/day", {"most_usd": 1000 + clients.next_number()}
    )


def _mcp_request(clients: ClientCrowd, tool: str, **arguments: Any) -> HttpRequest:
    """Over the fast path or the library."""
    params = {"name": tool, "arguments": {"app_id": clients.app, **arguments}}
    body, headers = build_message("tools/call", params, era=clients.dice.choice([MODERN, "2025-06-18", "2025-03-26"]))
    return HttpRequest("POST", "/mcp", body, headers)


def _mcp_chat_request(clients: ClientCrowd) -> HttpRequest:
    return _mcp_request(clients, "ai_chat", model=clients.dice.choice(_MODELS), **_HELLO)


KINDS: dict[str, Callable[[ClientCrowd], HttpRequest]] = {
    "put": lambda crowd: HttpRequest("PUT", f"/v1/{crowd.app}/kv/{_random_key(crowd)}", _random_value(crowd)),
    "get": lambda crowd: HttpRequest("GET", f"/v1/{crowd.app}/kv/{_random_key(crowd)}"),
    "batch": _batch_request,
    "agent": _agent_request,
    "run": _run_request,
    "cancel": lambda crowd: HttpRequest("POST", f"{crowd.random_run_path()}/cancel", {}),
    "resume": _resume_request,
    "events": lambda crowd: HttpRequest("GET", f"{crowd.random_run_path()}/events", endless=True),
    "chat": lambda crowd: _chat_request(crowd, stream=False),
    "stream": lambda crowd: _chat_request(crowd, stream=True),
    "proposal": _proposal_request,
    "decision": _decision_request,
    "approvals": lambda crowd: HttpRequest("GET", "/v1/approvals"),
    "app": lambda crowd: HttpRequest("POST", "/init", {"name": f"app-{crowd.dice.randrange(_NAMES)}"}),
    "key": lambda crowd: HttpRequest("POST", "/api-keys", {"name": f"key {crowd.dice.randrange(_NAMES)}"}),
    "billing": lambda _: HttpRequest("GET", "/dashboard/billing"),
    "budget": _budget_request,
    "audit": lambda crowd: HttpRequest("GET", f"/v1/{crowd.app}/audit-logs?limit=50"),
    "mcp write": lambda crowd: _mcp_request(crowd, "kv_incr", key="over mcp"),
    "mcp read": lambda crowd: _mcp_request(crowd, "kv_scan"),
    "mcp run": lambda crowd: _mcp_request(crowd, "agents_run", name="reader", input={"number": crowd.next_number()}),
    "mcp chat": _mcp_chat_request,
}
