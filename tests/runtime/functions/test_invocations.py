"""What a function gets, and what becomes of what it gives back."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from baobab.runtime.functions.answer import LogLine
from baobab.runtime.functions.errors import FunctionCancelled, FunctionThrew, FunctionTimedOut, NotAResponse
from tests.runtime.functions.sandboxes import (
    Sandbox,
    TableHost,
    iterate,
    make_program,
    make_request,
    open_sandbox,
    read,
)

ECHO = """
interface Sent { words: string[] }
export default async function (req: Request, ctx: any): Promise<Response> {
  const sent: Sent = req.method === "POST" ? await req.json() : { words: [] };
  return Response.json(
    { method: req.method, url: req.url, sent, accept: req.headers.get("accept"),
      user: ctx.user, app: ctx.app.name, key: ctx.env.KEY },
    { status: 201, headers: { "x-answer": "yes" } },
  );
}
"""


async def test_a_function_gets_the_request_and_answers_it(sandbox: Sandbox) -> None:
    request = make_request("POST", "/deep?a=1", iterate(b'{"words": ["a', b'", "b"]}'), accept="text/plain")
    result = await sandbox.run(ECHO, request, env={"KEY": "value"})
    assert result.status == 201
    assert ("x-answer", "yes") in result.headers
    assert result.json() == {
        "method": "POST",
        "url": "https://shop.example/fn/f/deep?a=1",
        "sent": {"words": ["a", "b"]},
        "accept": "text/plain",
        "user": {"id": "u1"},
        "app": "shop",
        "key": "value",
    }
    assert result.report.shutdown_reason == "EventLoopCompleted"
    assert result.report.error is None
    assert result.report.memory_mb > 0


async def test_an_export_named_handler_is_a_function_too(sandbox: Sandbox) -> None:
    result = await sandbox.run("export const handler = () => new Response('from handler')")
    assert result.content == b"from handler"


async def test_a_module_without_a_handler_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(FunctionThrew, match="no default export"):
        await sandbox.run("export const x = 1")


@pytest.mark.parametrize(
    "value", ["'text'", "undefined", "{ status: 200 }", "null", "Object.create(Response.prototype)"]
)
async def test_what_is_not_a_response_is_refused(sandbox: Sandbox, value: str) -> None:
    with pytest.raises(NotAResponse) as failure:
        await sandbox.run(f"export default () => ({value})")
    assert failure.value.report is not None


async def test_an_error_comes_with_its_place_in_the_source_and_no_path_of_the_server(sandbox: Sandbox) -> None:
    source = """interface A {
  a: string
}
function fail(): never {
  throw new RangeError('too far');
}
export default () => fail();"""
    with pytest.raises(FunctionThrew) as failure:
        await sandbox.run(source)
    assert failure.value.error == "RangeError: too far"
    assert failure.value.stack is not None
    assert failure.value.stack.splitlines() == [
        "RangeError: too far",
        "    at fail (f.ts:5:9)",
        "    at default (f.ts:7:22)",
    ]
    assert failure.value.report is not None
    assert failure.value.report.error == "RangeError: too far"


@pytest.mark.parametrize(
    "thrown", ["'a text'", "{ a: 1 }", "null", "undefined", "new Proxy({}, { get() { throw 1 } })"]
)
async def test_whatever_is_thrown_becomes_an_error(sandbox: Sandbox, thrown: str) -> None:
    with pytest.raises(FunctionThrew):
        await sandbox.run(f"export default () => {{ throw {thrown} }}")


async def test_a_body_streams_in_both_directions_piece_by_piece(sandbox: Sandbox) -> None:
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        while (piece := await pieces.get()) != b"":
            yield piece

    source = "export default (req) => new Response(req.body)"
    pieces.put_nowait(b"one")
    answer = await sandbox.open(source, make_request("POST", "/", body()))
    assert await anext(answer.body) == b"one"
    pieces.put_nowait(b"two")
    assert await anext(answer.body) == b"two"
    pieces.put_nowait(b"")
    assert await read(answer.body) == b""
    assert (await answer.report).error is None


async def test_a_large_body_goes_through_whole(sandbox: Sandbox) -> None:
    content = bytes(range(256)) * 12_000
    pieces = [content[at : at + 700_000] for at in range(0, len(content), 700_000)]
    result = await sandbox.run(
        "export default (req) => new Response(req.body)", make_request("PUT", "/", iterate(*pieces))
    )
    assert result.content == content


async def test_a_reader_that_takes_nothing_stops_the_writer(sandbox: Sandbox) -> None:
    source = """let pulls = 0;
    export default (req) => req.method === 'POST' ? new Response(String(pulls)) :
      new Response(new ReadableStream({ pull(c) { pulls++; c.enqueue(new Uint8Array(65536)); } }))"""
    program = make_program(source)
    answer = await sandbox.open(program)
    await anext(answer.body)
    other = await sandbox.run(program, make_request("POST", "/", iterate()))
    # A window is four of these pieces; whoever reads has taken one, and one or two wait in the stream itself.
    assert int(other.content) < 10
    await answer.body.aclose()  # type: ignore[attr-defined]
    assert (await answer.report).shutdown_reason == "TerminationRequested"


async def test_server_sent_events_arrive_as_they_are_sent(sandbox: Sandbox) -> None:
    source = """export default (req, ctx) => new Response(new ReadableStream({
      async start(c) {
        for (let i = 0; i < 3; i++) { await ctx.kv.get('go'); c.enqueue(new TextEncoder().encode(`data: ${i}\\n\\n`)); }
        c.close();
      }
    }), { headers: { 'content-type': 'text/event-stream' } })"""
    going: asyncio.Queue[None] = asyncio.Queue()
    answer = await sandbox.open(source, host=TableHost({"kv.get": lambda key: going.get()}))
    assert ("content-type", "text/event-stream") in answer.headers
    for at in range(3):
        going.put_nowait(None)
        assert await anext(answer.body) == f"data: {at}\n\n".encode()


async def test_a_client_that_goes_away_aborts_the_request(sandbox: Sandbox) -> None:
    source = """let aborted = null;
    export default (req) => {
      if (req.method === 'POST') return Response.json(aborted);
      req.signal.addEventListener('abort', () => { aborted = req.signal.reason.name; });
      return new Response(new ReadableStream({ pull: () => new Promise(() => {}) }));
    }"""
    program = make_program(source)
    answer = await sandbox.open(program)
    await answer.body.aclose()  # type: ignore[attr-defined]
    assert (await answer.report).shutdown_reason == "TerminationRequested"
    assert (await sandbox.run(program, make_request("POST", "/", iterate()))).json() == "AbortError"


async def test_a_caller_that_is_cancelled_before_the_answer_cancels_the_invocation(sandbox: Sandbox) -> None:
    is_begun = asyncio.Event()

    async def wait() -> None:
        is_begun.set()
        await asyncio.Event().wait()

    program = make_program("export default async (req, ctx) => { await ctx.kv.get('x'); return new Response() }")
    running = asyncio.ensure_future(sandbox.open(program, host=TableHost({"kv.get": lambda key: wait()})))
    await is_begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await sandbox.run(program)).status == 200


async def test_invocations_of_one_program_run_at_the_same_time_in_one_process(sandbox: Sandbox) -> None:
    source = """let inside = 0, most = 0;
    export default async (req, ctx) => {
      most = Math.max(most, ++inside);
      await ctx.kv.get('go');
      inside--; console.log(ctx.request.id);
      return Response.json(most);
    }"""
    gate = asyncio.Event()
    count = 0

    async def wait() -> None:
        nonlocal count
        count += 1
        if count == 8:
            gate.set()
        await gate.wait()

    host, program = TableHost({"kv.get": lambda key: wait()}), make_program(source)
    results = await asyncio.gather(
        *(sandbox.run(program, host=host, context={"request": {"id": f"r{at}"}}) for at in range(8))
    )
    assert {result.json() for result in results} == {8}
    assert [[line.message for line in result.report.logs] for result in results] == [[f"r{at}"] for at in range(8)]


async def test_what_two_apps_have_in_common_is_run_in_two_processes(sandbox: Sandbox) -> None:
    source = "let count = 0; export default () => Response.json(++count)"
    first, second = make_program(source), make_program(source, app="app2")
    assert [(await sandbox.run(first)).json() for _ in range(2)] == [1, 2]
    assert (await sandbox.run(second)).json() == 1
    assert (await sandbox.run(first, env={"A": "1"})).json() == 1
    assert (await sandbox.run(first)).json() == 3


async def test_console_lines_are_logs_of_their_invocation(sandbox: Sandbox) -> None:
    source = """export default async (req) => {
      console.log('plain', { a: [1, 2] }, 3); console.warn('careful'); console.error(new Error('bad').message);
      console.debug('%s', 'x');
      await new Promise((go) => setTimeout(go, 1)); console.info('later');
      return new Response();
    }"""
    lines: list[LogLine] = []
    result = await sandbox.run(source, on_log=lines.append)
    expected_lines = [
        ("info", "plain { a: [ 1, 2 ] } 3"),
        ("warn", "careful"),
        ("error", "bad"),
        ("debug", "%s x"),
        ("info", "later"),
    ]
    assert [(line.level, line.message) for line in lines] == expected_lines
    assert result.report.logs == tuple(lines)


async def test_an_error_that_nobody_waits_for_is_logged_and_the_process_goes_on(sandbox: Sandbox) -> None:
    source = """export default async (req) => {
      Promise.reject(new Error('nobody looks')); setTimeout(() => { throw new Error('in a timer') }, 0);
      await new Promise((go) => setTimeout(go, 20));
      return new Response('fine');
    }"""
    result = await sandbox.run(source)
    assert result.content == b"fine"
    messages = [line.message for line in result.report.logs if line.level == "error"]
    assert sorted(message.splitlines()[0] for message in messages) == [
        "Uncaught Error: in a timer",
        "Uncaught Error: nobody looks",
    ]


async def test_work_given_to_wait_until_goes_on_after_the_response(sandbox: Sandbox) -> None:
    source = """export default (req, ctx) => {
      ctx.waitUntil(ctx.kv.set('late', 1)); ctx.waitUntil(Promise.reject(new Error('swallowed')));
      return new Response('early');
    }"""
    gate = asyncio.Event()
    host = TableHost({"kv.set": lambda key, value: gate.wait()})
    answer = await sandbox.open(source, host=host)
    assert await read(answer.body) == b"early"
    gate.set()
    report = await answer.report
    assert [name for name, _, _ in host.calls] == ["kv.set"]
    assert report.error is None
    assert "swallowed" in report.logs[0].message


async def test_a_timeout_answers_with_its_duration_and_reason(sandbox: Sandbox) -> None:
    with pytest.raises(FunctionTimedOut) as failure:
        await sandbox.run("export default () => new Promise(() => {})", timeout_ms=100)
    assert failure.value.duration_ms >= 90
    assert failure.value.report is not None
    assert failure.value.report.shutdown_reason == "WallClockTime"


async def test_a_timeout_amid_the_body_cuts_it_with_an_error(sandbox: Sandbox) -> None:
    source = """export default () => new Response(new ReadableStream({
      start(c) { c.enqueue(new Uint8Array(3)); } , pull: () => new Promise(() => {}) }))"""
    answer = await sandbox.open(source, timeout_ms=1500)
    assert await anext(answer.body) == bytes(3)
    with pytest.raises(FunctionTimedOut):
        await anext(answer.body)
    assert (await answer.report).shutdown_reason == "WallClockTime"


async def test_an_error_amid_the_body_cuts_it_with_that_error(sandbox: Sandbox) -> None:
    source = """export default () => new Response(new ReadableStream({
      start(c) { c.enqueue(new Uint8Array(3)); c.error(new Error('half way')); } }))"""
    with pytest.raises(FunctionThrew, match="half way"):
        await sandbox.run(source)


async def test_the_report_of_an_answer_without_a_body_comes(sandbox: Sandbox) -> None:
    result = await sandbox.run("export default () => new Response(null, { status: 204 })")
    assert (result.status, result.content, result.report.error) == (204, b"", None)


async def test_what_stops_is_told_so(sandbox: Sandbox) -> None:
    is_begun = asyncio.Event()

    async def wait() -> None:
        is_begun.set()
        await asyncio.Event().wait()

    async with open_sandbox() as other:
        source = "export default async (req, ctx) => { await ctx.kv.get('x'); return new Response() }"
        running = asyncio.ensure_future(other.run(source, host=TableHost({"kv.get": lambda key: wait()})))
        await is_begun.wait()
    with pytest.raises(FunctionCancelled):
        await running
