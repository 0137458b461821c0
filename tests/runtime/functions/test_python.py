"""Functions in Python: what they get, what they may give back, and what they cannot do."""

import asyncio
import dataclasses
import hashlib
from typing import Any

import pytest

from baobab.runtime.functions.check import check_source
from baobab.runtime.functions.errors import FunctionThrew, FunctionTimedOut, NotAResponse, OutOfMemory
from baobab.runtime.functions.host import FetchRequest, FetchResponse, HostRefusal
from baobab.runtime.functions.program import Program
from baobab.runtime.functions.source_errors import BadSource
from tests.runtime.functions.sandboxes import Sandbox, TableHost, iterate, make_request, open_sandbox, read


def make_program(source: str) -> Program:
    return Program("app1", "org1", "f", "python", source, hashlib.sha256(source.encode()).hexdigest(), 64)


async def evaluate(sandbox: Sandbox, expression: str, **options: Any) -> Any:
    """The value of an expression inside of a function."""
    source = f"async def handler(req, ctx):\n    return {{'value': {expression}}}"
    return (await sandbox.run(make_program(source), **options)).json()["value"]


async def test_a_function_gets_the_request_and_answers_a_dict(sandbox: Sandbox) -> None:
    source = """
def handler(req, ctx):
    words = req.json()["words"]
    accept, key = req.headers["accept"], ctx.env["KEY"]
    return {"method": req.method, "words": words, "accept": accept, "user": ctx.user, "key": key}
"""
    request = make_request("POST", "/", iterate(b'{"words": ', b"[1]}"), Accept="text/plain")
    result = await sandbox.run(make_program(source), request, env={"KEY": "v"})
    assert (result.status, result.headers) == (200, [("content-type", "application/json")])
    assert result.json() == {"method": "POST", "words": [1], "accept": "text/plain", "user": {"id": "u1"}, "key": "v"}
    assert result.report.shutdown_reason == "EventLoopCompleted"


async def test_a_response_has_a_status_headers_and_text_or_bytes(sandbox: Sandbox) -> None:
    source = "def handler(req, ctx):\n    return Response(b'\\x00\\xff', 202, {'X-A': '1'})"
    result = await sandbox.run(make_program(source))
    assert (result.status, result.headers, result.content) == (202, [("x-a", "1")], b"\x00\xff")


@pytest.mark.parametrize("value", ["None", "'text'", "7", "object()"])
async def test_anything_else_is_not_a_response(sandbox: Sandbox, value: str) -> None:
    with pytest.raises((NotAResponse, FunctionThrew)):
        await sandbox.run(make_program(f"def handler(req, ctx):\n    return {value}"))


@pytest.mark.parametrize(
    ("expression", "member", "arguments", "acting"),
    [
        ("ctx.db.query('select $1', [1])", "db.query", ["select $1", [1]], None),
        ("ctx.db.as_user('u7').query('select 1')", "db.query", ["select 1", []], ("user", "u7")),
        ("ctx.db.as_anon().query('select 1')", "db.query", ["select 1", []], ("anon",)),
        ("ctx.kv.set('a', {'b': 1}, {'ttl': 5})", "kv.set", ["a", {"b": 1}, {"ttl": 5}], None),
        ("ctx.kv.delete('a')", "kv.del", ["a"], None),
        ("ctx.storage.put('a', b'ab')", "storage.put", ["a", {"$base64": "YWI="}], None),
        ("ctx.ai.chat({'messages': []})", "ai.chat", [{"messages": []}], None),
        ("ctx.integrations.as_user('u7').execute('X')", "integrations.execute", ["X", {}], ("user", "u7")),
        ("ctx.idempotency.claim('k')", "idempotency.claim", ["k", {"scope": "default"}], None),
    ],
)
async def test_a_member_of_ctx_asks_the_host(
    sandbox: Sandbox, expression: str, member: str, arguments: list[Any], acting: Any
) -> None:
    host = TableHost({member: {"from": "the host"}})
    assert await evaluate(sandbox, f"await {expression}", host=host) == {"from": "the host"}
    assert host.calls == [(member, arguments, acting)]


async def test_a_refusal_is_an_error_and_a_fault_says_nothing(sandbox: Sandbox) -> None:
    host = TableHost({"kv.get": HostRefusal("FORBIDDEN", "No.", "Ask."), "kv.set": RuntimeError("secret")})
    with pytest.raises(FunctionThrew, match=r"FORBIDDEN: No\. Ask\."):
        await evaluate(sandbox, "await ctx.kv.get('a')", host=host)
    with pytest.raises(FunctionThrew) as failure:
        await evaluate(sandbox, "await ctx.kv.set('a', 1)", host=host)
    assert "secret" not in str(failure.value)


async def test_fetch_and_wait_until_and_step(sandbox: Sandbox) -> None:
    async def fetch(request: FetchRequest) -> FetchResponse:
        return FetchResponse(201, (("x-b", "2"),), iterate(b"got " + await read(request.body)))

    source = """
async def handler(req, ctx):
    answer = await fetch("https://api.example/", method="POST", body="sent")
    ctx.wait_until(ctx.kv.set("late", 1))
    paid = await ctx.step("pay", lambda: 3)
    return [answer.status, answer.headers["x-b"], answer.text(), paid]
"""
    host = TableHost({"step.begin": {"done": False}}, fetching=fetch)
    result = await sandbox.run(make_program(source), host=host)
    assert result.json() == [201, "2", "got sent", 3]
    assert [name for name, _, _ in host.calls] == ["step.begin", "step.end", "kv.set"]


async def test_an_error_has_its_line_and_what_is_printed_is_a_log(sandbox: Sandbox) -> None:
    with pytest.raises(FunctionThrew) as failure:
        await sandbox.run(make_program("def handler(req, ctx):\n    print('a', 1)\n    raise ValueError('no')"))
    assert failure.value.error == "ValueError: no"
    assert 'File "f.py", line 3' in str(failure.value.stack)
    assert failure.value.report is not None
    assert [line.message for line in failure.value.report.logs] == ["a 1"]


@pytest.mark.parametrize(
    "statement",
    [
        "open('/etc/passwd').read()",
        "__import__('os').environ['PATH']",
        "import subprocess",
        "import socket",
        "import ctypes",
        "import os\n    os.listdir('/')",
        "import os\n    os.environ['PATH']",
        "import pathlib\n    pathlib.Path('/etc/passwd').read_text()",
        "().__class__.__base__.__subclasses__()",
        "host_call.__globals__",
        "exit()",
    ],
)
async def test_what_a_function_may_not_do_fails(sandbox: Sandbox, statement: str) -> None:
    with pytest.raises(FunctionThrew):
        await sandbox.run(make_program(f"def handler(req, ctx):\n    {statement}\n    return {{}}"))


async def test_an_endless_loop_and_too_much_memory_are_ended() -> None:
    async with open_sandbox(cpu_ms=300) as sandbox:
        with pytest.raises(FunctionTimedOut) as failure:
            await sandbox.run(make_program("def handler(req, ctx):\n    while True: pass"))
        assert failure.value.report is not None
        assert failure.value.report.shutdown_reason == "CPUTime"
    async with open_sandbox() as sandbox:
        with pytest.raises(FunctionTimedOut):
            await sandbox.run(make_program("def handler(req, ctx):\n    while True: pass"), timeout_ms=300)
        source = "def handler(req, ctx):\n    kept = []\n    while True: kept.append('x' * 1000)"
        with pytest.raises(OutOfMemory):
            await sandbox.run(dataclasses.replace(make_program(source), memory_mb=16))


@pytest.mark.parametrize(
    "statement",
    ["a = b'x'\n    while True: a = a + a", "a = 'x' * 10**10", "a = 7 ** 10**9", "a = [[0] * 1000] * 10**9"],
)
async def test_one_operation_cannot_take_more_memory_than_there_is(sandbox: Sandbox, statement: str) -> None:
    with pytest.raises(OutOfMemory):
        await sandbox.run(make_program(f"def handler(req, ctx):\n    {statement}"))


async def test_an_operation_that_cannot_be_interrupted_is_ended_for_its_time() -> None:
    async with open_sandbox(cpu_ms=300) as sandbox:
        with pytest.raises(FunctionTimedOut) as failure:
            await sandbox.run(make_program("def handler(req, ctx):\n    a = 3\n    while True: a = a * a"))
        assert failure.value.report is not None
        assert failure.value.report.shutdown_reason == "CPUTime"


async def test_an_invocation_leaves_nothing_for_the_next_one(sandbox: Sandbox) -> None:
    source = "calls = []\ndef handler(req, ctx):\n    calls.append(1)\n    return [len(calls)]"
    assert [(await sandbox.run(make_program(source))).json() for _ in range(2)] == [[1], [1]]


async def test_a_caller_that_goes_away_ends_the_invocation(sandbox: Sandbox) -> None:
    is_begun, is_cancelled = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        is_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    source = "async def handler(req, ctx):\n    await ctx.kv.get('x')"
    host = TableHost({"kv.get": lambda key: wait()})
    running = asyncio.ensure_future(sandbox.open(make_program(source), host=host))
    await is_begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await is_cancelled.wait()


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("def handler(:\n  pass", "SyntaxError", 1),
        ("import httpx\ndef handler(req, ctx): ...", "no packages", 1),
        ("x = 1", "no handler", None),
        ("handler = 7", "no handler", None),
        ("\nraise ValueError('at once')", "ValueError: at once", 2),
        ("class A(dict):\n    pass", "part of the language", None),
    ],
)
async def test_a_source_is_refused_with_its_line(source: str, message: str, line: int | None) -> None:
    with pytest.raises(BadSource) as failure:
        await check_source(source, "python", fetch=None)
    assert message in failure.value.message
    if line is not None:
        assert failure.value.line == line


async def test_a_source_is_checked_and_may_declare_its_input() -> None:
    source = "input_schema = {'type': 'object'}\nasync def handler(req, ctx):\n    return {}"
    result = await check_source(source, "python", fetch=None)
    assert (result.code, result.input_schema) == (source, {"type": "object"})


async def test_a_program_that_replaces_what_makes_its_answer_harms_itself(sandbox: Sandbox) -> None:
    text, no_headers = "{'status': 200, 'headers': {}, 'body': 'text'}", "{'status': 200, 'headers': []}"
    for answer in ("7", "{}", text, no_headers):
        source = f"def handler(req, ctx): ...\nasync def _handle(*arguments):\n    return {answer}"
        with pytest.raises(NotAResponse):
            await sandbox.run(make_program(source))
    source = "def handler(req, ctx):\n    return Response('', 200, {'x-a': 'b\\r\\nc: d'})"
    with pytest.raises(FunctionThrew, match="header"):
        await sandbox.run(make_program(source))


async def test_what_fails_in_wait_until_is_a_line_of_the_log(sandbox: Sandbox) -> None:
    source = "async def handler(req, ctx):\n    ctx.wait_until(ctx.kv.get('x'))\n    return {}"
    result = await sandbox.run(make_program(source), host=TableHost({"kv.get": HostRefusal("FORBIDDEN", "No.")}))
    assert result.report.error is None
    assert [line.message for line in result.report.logs] == ["wait_until: FORBIDDEN: No."]
