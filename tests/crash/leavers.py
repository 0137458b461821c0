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

from tests.cli.server_process import PATIENCE, ServerProcess
from tests.crash.machines import OWNER, made_app
from tests.mcp_server.speaking import MODERN, spoken

LONGEST_STAY = 0.006
"""Seconds from the last byte that a leaver sends to its leaving, unless it waits for the first of its answer."""
_LONGEST_PAD = 60_000
"""Characters of a value: it is sent in several pieces."""
_NAMES = 12
"""Of apps, agents and keys each: a name that is taken is refused, which is an answer, too."""
_REFUSED = (404, 409, 428)
"""Because it is not there yet, is over or taken, or waits for a person."""
_AGENT = {"dedupe_window_seconds": 0}
_HELLO = {"messages": [{"role": "user", "content": "Hello! " * 40}]}
_MODELS = ("openai/gpt-4o-mini", "baobab/echo")
# A reset, in place of a good-bye.
_AT_ONCE = struct.pack("ii", 1, 0)


def _graph(*steps: dict[str, Any]) -> dict[str, Any]:
    names = [f"step {number}" for number in range(len(steps))] + ["done"]
    nodes = dict(zip(names, (*steps, {"type": "end", "output_template": "{{ input }}"}), strict=True))
    edges = [{"from": one, "to": other} for one, other in itertools.pairwise(names)]
    tools = {"builtin": ["kv_get", "kv_incr"]}
    return {"spec_version": 1, "entry": names[0], "tools": tools, "nodes": nodes, "edges": edges}


def _tool(name: str, key: str) -> dict[str, Any]:
    return {"type": "tool", "tool_ref": {"source": "builtin", "name": name}, "args_template": {"key": key}}


_READ, _THINK = _tool("kv_get", "seed"), {"type": "llm", "model": _MODELS[0], "input_template": "Hello!"}
_THINK["output_key"] = "thought"
# What writes waits for a person.
AGENTS = {
    "reader": _graph(_READ, _READ),
    "asker": _graph(_READ, _tool("kv_incr", "raised"), _READ),
    "thinker": _graph(_THINK, _READ, _THINK),
}


@dataclass
class Wish:
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    endless: bool = False
    """Whether its answer ends by itself."""
    proposes: bool = False
    """Whether it is to wait for a person."""


@dataclass
class Crowd:
    """What is known of the app that everybody uses, and what can be asked of it."""

    session: aiohttp.ClientSession
    server: ServerProcess
    app: str
    dice: random.Random
    agent_key: dict[str, str] = field(default_factory=dict)
    runs: list[tuple[str, str]] = field(default_factory=list)
    """Agent and id of each run that somebody who stayed has started."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Run and token of what runs have asked."""
    proposed: list[str] = field(default_factory=list)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Of those who stayed, by kind and status."""
    _number: int = 0

    @classmethod
    async def gathered(cls, session: aiohttp.ClientSession, server: ServerProcess, dice: random.Random) -> "Crowd":
        crowd = cls(session, server, await made_app(session, server, "crowd"), dice)
        made = await crowd.ask(Wish("POST", "/api-keys", {"name": "agent", "approval": "write"}))
        crowd.agent_key = {"Authorization": f"Bearer {made['key']}"}
        await crowd.ask(Wish("PUT", f"/v1/{crowd.app}/kv/seed", {"value": 7}))
        for name, graph in AGENTS.items():
            await crowd.ask(Wish("POST", f"/v1/{crowd.app}/agents", {"name": name, "graph_spec": graph, **_AGENT}))
        # One of each that later ones can be about.
        for _ in range(3):
            for kind in ("run", "proposal"):
                await crowd.stay(kind)
        async with asyncio.timeout(PATIENCE):
            while not crowd.asked:
                await crowd.look()
        return crowd

    async def ask(self, wish: Wish) -> Any:
        """An answer that is none but a success."""
        async with self._sent(wish) as answer:
            text = await answer.text()
            assert answer.status < 300, f"{wish}: {answer.status} {text}"
            return json.loads(text) if text.startswith(("{", "[")) else text

    async def stay(self, kind: str) -> None:
        """Ask for something and wait for the answer, which must be one of a server that is well."""
        wish = KINDS[kind](self)
        async with self._sent(wish) as answer:
            if wish.endless:
                await answer.content.readany()
                text = ""
            else:
                text = await answer.text()
            well = answer.status < 300 or answer.status in _REFUSED
            assert well, f"{kind}: {answer.status} {text}\n{self.server.told[-4000:]}"
            assert '"isError":true' not in text, text
            self.answers[kind, answer.status] += 1
            if wish.proposes:
                self.proposed.append(json.loads(text)["approval_id"])
            elif kind == "run" and answer.status == 201:
                self.runs.append((wish.path.split("/")[4], json.loads(text)["run_id"]))

    async def leave(self, kind: str) -> None:
        """Ask for something and be gone: in the middle of asking, a little later, or when the answer begins."""
        wish, dice, where = KINDS[kind](self), self.dice, urlsplit(self.server.address)
        sent, way = _bytes(wish, where.netloc), dice.choice(["asking", "asked", "asked", "answered"])
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        with contextlib.suppress(OSError):
            writer.write(sent[: dice.randrange(len(sent))] if way == "asking" else sent)
            if way == "answered":
                async with asyncio.timeout(PATIENCE):
                    await reader.read(dice.choice([1, 200, 4096]))
            await asyncio.sleep(dice.random() * LONGEST_STAY)
        if dice.random() < 0.5:
            line: socket.socket = writer.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        writer.transport.abort()

    async def look(self) -> None:
        """Learn what the runs have asked that are known."""
        for agent, run_id in self.runs:
            if agent != "asker" or any(run_id == known for known, _ in self.asked):
                continue
            told = await self.ask(Wish("GET", f"/v1/{self.app}/agents/{agent}/runs/{run_id}/events.json"))
            tokens = [each["payload"]["approval_token"] for each in told["events"] if each["type"] == "run_paused"]
            self.asked += [(run_id, token) for token in tokens]

    async def standing(self, status: str) -> list[str]:
        """The newest runs that stand so."""
        found = []
        for agent in AGENTS:
            told = await self.ask(Wish("GET", f"/v1/{self.app}/agents/{agent}/runs?status={status}"))
            found += [f"{agent} {run['id']}" for run in told["runs"]]
        return found

    def next(self) -> int:
        self._number += 1
        return self._number

    def run(self) -> str:
        agent, run_id = self.dice.choice(self.runs[-8:])
        return f"/v1/{self.app}/agents/{agent}/runs/{run_id}"

    def _sent(self, wish: Wish) -> Any:
        url = self.server.address + wish.path
        return self.session.request(wish.method, url, json=wish.body, headers={**OWNER, **wish.headers})


def _bytes(wish: Wish, host: str) -> bytes:
    body = b"" if wish.body is None else json.dumps(wish.body).encode()
    headers = {"host": host, **OWNER, "content-type": "application/json", **wish.headers}
    lines = [f"{wish.method} {wish.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def _value(crowd: Crowd) -> dict[str, Any]:
    return {"value": {"at": crowd.next(), "pad": "x" * crowd.dice.randrange(_LONGEST_PAD)}}


def _key(crowd: Crowd) -> str:
    return f"k{crowd.dice.randrange(20)}"


def _batch(crowd: Crowd) -> Wish:
    ops = [{"op": "put", "key": _key(crowd), **_value(crowd)}, {"op": "get", "key": _key(crowd)}]
    return Wish("POST", f"/v1/{crowd.app}/kv/_batch", {"ops": ops})


def _run(crowd: Crowd) -> Wish:
    agent = crowd.dice.choice(["reader", "asker", "asker", "thinker"]) if crowd.runs else "asker"
    return Wish("POST", f"/v1/{crowd.app}/agents/{agent}/runs", {"input": {"number": crowd.next()}})


def _resume(crowd: Crowd) -> Wish:
    if not crowd.asked:
        return Wish("GET", crowd.run())
    run_id, token = crowd.dice.choice(crowd.asked[-8:])
    path = f"/v1/{crowd.app}/agents/asker/runs/{run_id}/resume"
    return Wish("POST", path, {"approval_token": token, "approved": True})


def _agent(crowd: Crowd) -> Wish:
    name = f"another-{crowd.dice.randrange(_NAMES)}"
    return Wish("POST", f"/v1/{crowd.app}/agents", {"name": name, "graph_spec": AGENTS["asker"], **_AGENT})


def _chat(crowd: Crowd, *, stream: bool) -> Wish:
    asked = {"model": crowd.dice.choice(_MODELS), "stream": stream, **_HELLO}
    return Wish("POST", f"/v1/{crowd.app}/chat/completions", asked)


def _proposal(crowd: Crowd) -> Wish:
    path = f"/v1/{crowd.app}/kv/proposed/incr"
    return Wish("POST", path, {"by": crowd.next()}, crowd.agent_key, proposes=True)


def _decision(crowd: Crowd) -> Wish:
    return Wish("POST", f"/v1/approvals/{crowd.dice.choice(crowd.proposed[-8:])}/approve", {})


def _budget(crowd: Crowd) -> Wish:
    return Wish("PUT", f"/dashboard/billing/budgets/app/{crowd.app}/day", {"most_usd": 1000 + crowd.next()})


def _mcp(crowd: Crowd, tool: str, **arguments: Any) -> Wish:
    """By the lane or by the library."""
    params = {"name": tool, "arguments": {"app_id": crowd.app, **arguments}}
    body, headers = spoken("tools/call", params, era=crowd.dice.choice([MODERN, "2025-06-18", "2025-03-26"]))
    return Wish("POST", "/mcp", body, headers)


def _mcp_chat(crowd: Crowd) -> Wish:
    return _mcp(crowd, "ai_chat", model=crowd.dice.choice(_MODELS), **_HELLO)


KINDS: dict[str, Callable[[Crowd], Wish]] = {
    "put": lambda crowd: Wish("PUT", f"/v1/{crowd.app}/kv/{_key(crowd)}", _value(crowd)),
    "get": lambda crowd: Wish("GET", f"/v1/{crowd.app}/kv/{_key(crowd)}"),
    "batch": _batch,
    "agent": _agent,
    "run": _run,
    "cancel": lambda crowd: Wish("POST", f"{crowd.run()}/cancel", {}),
    "resume": _resume,
    "events": lambda crowd: Wish("GET", f"{crowd.run()}/events", endless=True),
    "chat": lambda crowd: _chat(crowd, stream=False),
    "stream": lambda crowd: _chat(crowd, stream=True),
    "proposal": _proposal,
    "decision": _decision,
    "approvals": lambda crowd: Wish("GET", "/v1/approvals"),
    "app": lambda crowd: Wish("POST", "/init", {"name": f"app-{crowd.dice.randrange(_NAMES)}"}),
    "key": lambda crowd: Wish("POST", "/api-keys", {"name": f"key {crowd.dice.randrange(_NAMES)}"}),
    "billing": lambda _: Wish("GET", "/dashboard/billing"),
    "budget": _budget,
    "audit": lambda crowd: Wish("GET", f"/v1/{crowd.app}/audit-logs?limit=50"),
    "mcp write": lambda crowd: _mcp(crowd, "kv_incr", key="over mcp"),
    "mcp read": lambda crowd: _mcp(crowd, "kv_scan"),
    "mcp run": lambda crowd: _mcp(crowd, "agents_run", name="reader", input={"number": crowd.next()}),
    "mcp chat": _mcp_chat,
}
