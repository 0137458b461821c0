"""What the tests of functions need: an engine, programs from their source, and a host that answers from a table."""

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from baobab.runtime.functions.answer import FunctionAnswer, LogLine, Report
from baobab.runtime.functions.engine import FunctionEngine
from baobab.runtime.functions.host import Acting, FetchRequest, FetchResponse, HostRefusal
from baobab.runtime.functions.limits import EngineLimits
from baobab.runtime.functions.program import FunctionRequest, Program

CONTEXT: dict[str, JsonValue] = {
    "user": {"id": "u1"},
    "caller": {"type": "end_user_jwt", "keyId": None, "scope": None, "userId": "u1"},
    "app": {"id": "app1", "name": "shop", "substrateOrganizationId": None},
    "request": {"id": "r1", "ip": None, "country": None, "functionName": "f"},
}


async def iterate(*pieces: bytes) -> AsyncIterator[bytes]:
    """A body of some pieces."""
    for piece in pieces:
        yield piece


async def read(body: AsyncIterator[bytes] | None) -> bytes:
    """All of a body."""
    return b"".join([piece async for piece in body]) if body is not None else b""


@dataclass
class TableHost:
    """A host that answers calls from a table, and notes them. A callable gets the arguments; an exception is raised."""

    answers: Mapping[str, Any] = field(default_factory=dict)
    fetching: Callable[[FetchRequest], Awaitable[FetchResponse]] | None = None
    invoking: Callable[[str, FunctionRequest], Awaitable[FunctionAnswer]] | None = None
    calls: list[tuple[str, list[JsonValue], Acting]] = field(default_factory=list)

    async def call(self, member: str, arguments: list[JsonValue], acting: Acting) -> JsonValue:
        self.calls.append((member, arguments, acting))
        answer = self.answers.get(member)
        if isinstance(answer, Exception):
            raise answer
        result: JsonValue = answer(*arguments) if callable(answer) else answer
        return await result if isinstance(result, Awaitable) else result

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        if self.fetching is None:
            raise HostRefusal("FORBIDDEN", "Nothing is reached from here.")
        return await self.fetching(request)

    async def invoke(self, name: str, request: FunctionRequest) -> FunctionAnswer:
        assert self.invoking is not None
        return await self.invoking(name, request)


@dataclass(frozen=True)
class Result:
    """A whole answer of a function."""

    status: int
    headers: list[tuple[str, str]]
    content: bytes
    report: Report

    def json(self) -> Any:
        return json.loads(self.content)


def make_program(source: str, *, app: str = "app1", organization: str = "org1", memory_mb: int = 64) -> Program:
    """A program of one source, as a deploy would make it."""
    digest = hashlib.sha256(source.encode()).hexdigest()
    return Program(app, organization, "f", "typescript", source, digest, memory_mb)


def make_request(
    method: str = "GET", path: str = "/", body: AsyncIterator[bytes] | None = None, **headers: str
) -> FunctionRequest:
    return FunctionRequest(method, f"https://shop.example/fn/f{path}", tuple(headers.items()), body)


@dataclass
class Sandbox:
    """An engine, with what most tests call it with."""

    engine: FunctionEngine

    async def open(
        self,
        program: Program | str,
        request: FunctionRequest | None = None,
        *,
        host: TableHost | None = None,
        env: Mapping[str, str] | None = None,
        timeout_ms: int = 60_000,
        on_log: Callable[[LogLine], None] = lambda line: None,
        context: Mapping[str, JsonValue] | None = None,
    ) -> FunctionAnswer:
        """Begins an invocation and returns when the head of its answer is there."""
        return await self.engine.invoke(
            make_program(program) if isinstance(program, str) else program,
            request or make_request(),
            {**CONTEXT, **(context or {})},
            env or {},
            host or TableHost(),
            timeout_ms=timeout_ms,
            on_log=on_log,
        )

    async def run(self, program: Program | str, request: FunctionRequest | None = None, **options: Any) -> Result:
        """Makes a whole invocation."""
        answer = await self.open(program, request, **options)
        content = await read(answer.body)
        return Result(answer.status, answer.headers, content, await answer.report)

    async def evaluate(self, expression: str, **options: Any) -> Any:
        """The value of an expression inside of a function, as JSON; what it throws is a text."""
        source = f"""export default async function (req: Request, ctx: any) {{
            try {{ return Response.json({{ value: await (async () => ({expression}))() ?? null }}); }}
            catch (error) {{ return Response.json({{ error: String(error?.message ?? error) }}); }}
        }}"""
        return (await self.run(source, **options)).json()


@asynccontextmanager
async def open_sandbox(**limits: Any) -> AsyncIterator[Sandbox]:
    """A sandbox whose processes are gone afterwards."""
    engine = FunctionEngine(EngineLimits(**{"load_seconds": 120, "cpu_ms": 120_000, "has_spare": False, **limits}))
    try:
        yield Sandbox(engine)
    finally:
        await engine.close()
        assert engine.processes == 0
