"""What a function may use, and what happens to one that uses more."""

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from baobab.runtime.functions.answer import LogLine
from baobab.runtime.functions.errors import (
    FunctionError,
    FunctionsBusy,
    FunctionThrew,
    FunctionTimedOut,
    OutOfMemory,
    ResponseTooLarge,
)
from tests.runtime.functions.sandboxes import (
    Sandbox,
    TableHost,
    iterate,
    make_program,
    make_request,
    open_sandbox,
    read,
)

WAITING = "export default async (req, ctx) => { await ctx.kv.get('go'); return new Response('done'); }"


class Gate:
    """A host call that waits until the gate opens."""

    def __init__(self, expected: int = 1) -> None:
        self._expected = expected
        self._inside = 0
        self._is_open = asyncio.Event()
        self.reached = asyncio.Event()
        self.host = TableHost({"kv.get": lambda key: self._wait()})

    async def _wait(self) -> None:
        self._inside += 1
        if self._inside == self._expected:
            self.reached.set()
        await self._is_open.wait()

    def open(self) -> None:
        self._is_open.set()


@pytest.mark.parametrize(
    "body",
    [
        "const kept = []; for (;;) kept.push(new Array(1000).fill(1.5))",
        "const kept = []; for (;;) kept.push(new Uint8Array(10_000_000).fill(1))",
        "const kept = []; for (;;) { kept.push(new ArrayBuffer(50_000_000)); new Uint8Array(kept.at(-1)).fill(1); }",
        "const memory = new WebAssembly.Memory({ initial: 1 });"
        " for (;;) { memory.grow(160); new Uint8Array(memory.buffer).fill(1); }",
        "let text = 'x'; for (;;) { text += text; text.charCodeAt(7); }",
        "const kept = []; for (;;) kept.push(new Blob([new Uint8Array(10_000_000).fill(1)]))",
        "const kept = new Map(); for (let at = 0; ; at++) kept.set('key' + at, { at })",
    ],
)
async def test_a_function_that_takes_too_much_memory_is_ended(sandbox: Sandbox, body: str) -> None:
    with pytest.raises(OutOfMemory) as failure:
        await sandbox.run(f"export default () => {{ {body} }}")
    assert failure.value.report is not None
    assert failure.value.report.shutdown_reason == "Memory"
    assert failure.value.report.memory_mb < 64 * 8


@pytest.mark.parametrize(
    "body",
    [
        "for (;;);",
        "const again = () => queueMicrotask(again); again(); return new Promise(() => {});",
        "const again = async () => { for (;;) await null; }; await again();",
        "/(a+)+$/.test('a'.repeat(60) + 'b');",
        "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);",
        "const again = () => process.nextTick(again); again(); return new Promise(() => {});",
    ],
)
async def test_a_function_that_does_not_let_go_is_killed_at_its_timeout(body: str) -> None:
    async with open_sandbox() as sandbox:
        with pytest.raises(FunctionTimedOut) as failure:
            await sandbox.run(f"export default async () => {{ {body} }}", timeout_ms=300)
        assert failure.value.report is not None
        assert failure.value.report.shutdown_reason == "WallClockTime"


async def test_processor_time_is_bounded() -> None:
    async with open_sandbox(cpu_ms=200) as sandbox:
        with pytest.raises(FunctionTimedOut, match="processor time") as failure:
            await sandbox.run("export default () => { for (;;); }")
        assert failure.value.report is not None
        assert failure.value.report.shutdown_reason == "CPUTime"
        assert failure.value.report.cpu_ms > 200


async def test_what_loads_for_ever_is_ended() -> None:
    async with open_sandbox(load_seconds=1.0) as sandbox:
        with pytest.raises(FunctionTimedOut, match="not loaded"):
            await sandbox.run("for (;;); export default () => new Response()")


async def test_those_who_share_a_process_with_an_offender_are_told(sandbox: Sandbox) -> None:
    source = """export default async (req, ctx) => {
      await ctx.kv.get('go');
      if (req.method === 'POST') for (;;);
      return new Response(new ReadableStream({ pull: () => new Promise(() => {}) }));
    }"""
    program, gate = make_program(source), Gate(2)
    victim = asyncio.ensure_future(sandbox.open(program, host=gate.host))
    offender = asyncio.ensure_future(
        sandbox.open(program, make_request("POST", "/", iterate()), host=gate.host, timeout_ms=1000)
    )
    await gate.reached.wait()
    gate.open()
    with pytest.raises(FunctionTimedOut):
        await offender
    with pytest.raises(FunctionThrew, match="Another invocation") as failure:
        await read((await victim).body)
    assert failure.value.report is not None
    assert failure.value.report.shutdown_reason == "EarlyDrop"
    # The next call gets a new process.
    gate.open()
    answer = await sandbox.open(program, host=gate.host)
    await answer.body.aclose()  # type: ignore[attr-defined]


async def test_a_process_whose_function_timed_out_finishes_what_else_it_does_and_gets_nothing_new() -> None:
    source = """let calls = 0;
    export default async (req, ctx) => {
      calls++;
      if (req.method === 'POST') await new Promise(() => {});
      await ctx.kv.get('go');
      return Response.json(calls);
    }"""
    async with open_sandbox() as sandbox:
        program, gate = make_program(source), Gate()
        slow = asyncio.ensure_future(sandbox.run(program, host=gate.host))
        await gate.reached.wait()
        with pytest.raises(FunctionTimedOut):
            await sandbox.run(program, make_request("POST", "/", iterate()), host=gate.host, timeout_ms=50)
        gate.open()
        assert (await sandbox.run(program, host=gate.host)).json() == 1
        assert (await slow).json() == 2


async def test_a_flood_of_lines_is_cut_and_says_so() -> None:
    async with open_sandbox(log_lines=10) as sandbox:
        lines: list[LogLine] = []
        result = await sandbox.run(
            "export default () => { for (let i = 0; i < 5000; i++) console.log('line', i); return new Response(); }",
            on_log=lines.append,
        )
        assert [line.message for line in result.report.logs[:2]] == ["line 0", "line 1"]
        assert len(result.report.logs) == 11
        assert result.report.logs[-1].message.startswith("4990 more lines were cut")
        assert result.report.logs == tuple(lines)


async def test_a_long_line_is_cut_and_says_so(sandbox: Sandbox) -> None:
    result = await sandbox.run("export default () => { console.log('x'.repeat(1_000_000)); return new Response(); }")
    message = result.report.logs[0].message
    assert len(message) < 9000
    assert message.endswith("[... cut, 1000000 characters]")


async def test_a_response_is_bounded() -> None:
    async with open_sandbox(response_bytes=100_000) as sandbox:
        answer = await sandbox.open("export default () => new Response(new Uint8Array(200_000))")
        with pytest.raises(ResponseTooLarge):
            await read(answer.body)
        assert (await answer.report).error is not None


async def test_a_request_is_bounded() -> None:
    async with open_sandbox(request_bytes=1000) as sandbox:
        source = "export default async (req) => new Response(await req.text().catch((e) => e.message))"
        result = await sandbox.run(source, make_request("POST", "/", iterate(bytes(2000))))
        assert b"more than 1000 bytes" in result.content


async def test_open_calls_are_bounded(sandbox: Sandbox) -> None:
    source = """export default async (req, ctx) => {
      const all = Array.from({ length: 100 }, () => ctx.kv.get('go').then(() => 'ok', (e) => e.code));
      ctx.waitUntil(Promise.all(all)); return Response.json(await Promise.race(all));
    }"""
    gate = Gate(64)
    running = asyncio.ensure_future(sandbox.run(source, host=gate.host))
    await gate.reached.wait()
    gate.open()
    assert (await running).json() == "RATE_LIMITED"


async def test_an_argument_that_is_too_large_ends_its_process() -> None:
    async with open_sandbox(call_bytes=100_000) as sandbox:
        with pytest.raises(FunctionThrew):
            await sandbox.run("export default (req, ctx) => ctx.kv.set('a', 'x'.repeat(200_000))")


async def test_timers_end_with_their_invocation(sandbox: Sandbox) -> None:
    source = """let ticks = 0;
    export default async (req) => {
      if (req.method === 'GET') {
        setInterval(() => ticks++, 1); setTimeout(() => { ticks += 1000 }, 1);
        return new Response();
      }
      const before = ticks; await new Promise((go) => setTimeout(go, 50)); return Response.json(ticks - before);
    }"""
    program = make_program(source)
    await sandbox.run(program)
    assert (await sandbox.run(program, make_request("POST", "/", iterate()))).json() == 0


async def test_an_idle_process_is_stopped_and_goes_on_at_the_next_call(sandbox: Sandbox) -> None:
    program = make_program("let calls = 0; export default () => Response.json(++calls)")
    assert (await sandbox.run(program)).json() == 1
    (process,) = [
        each
        for each in sandbox.engine._pool._all
        if each.last_used == max(other.last_used for other in sandbox.engine._pool._all)
    ]
    while "T (stopped)" not in Path("/proc", str(process.pid), "status").read_text():
        await asyncio.sleep(0.01)
    assert (await sandbox.run(program)).json() == 2


async def test_work_after_wait_until_is_over_is_stopped() -> None:
    async with open_sandbox(wait_until_seconds=0.2) as sandbox:
        source = "export default (req, ctx) => { ctx.waitUntil(new Promise(() => {})); return new Response('early'); }"
        answer = await sandbox.open(source)
        assert await read(answer.body) == b"early"
        assert (await answer.report).shutdown_reason == "WallClockTime"


async def test_one_organisation_leaves_room_for_another() -> None:
    # Room for four processes at work, two for each organisation.
    async with open_sandbox(total_memory_mb=4 * 90) as sandbox:
        gate = Gate(3)
        programs = [make_program(WAITING, app=f"app{at}") for at in range(3)]
        running = [asyncio.ensure_future(sandbox.run(each, host=gate.host)) for each in programs[:2]]
        other = make_program(WAITING, app="other", organization="org2")
        while len(sandbox.engine._pool._all) < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(FunctionsBusy) as failure:
            await sandbox.run(programs[2], host=gate.host)
        assert failure.value.retry_after_seconds == 5
        running.append(asyncio.ensure_future(sandbox.run(other, host=gate.host)))
        await gate.reached.wait()
        gate.open()
        assert [result.content for result in await asyncio.gather(*running)] == [b"done"] * 3


async def test_idle_processes_make_room_the_oldest_of_the_greediest_organisation_first() -> None:
    source = "let calls = 0; export default () => Response.json(++calls)"
    async with open_sandbox(processes=3) as sandbox:
        mine = [make_program(source, app=f"app{at}") for at in range(2)]
        other = make_program(source, app="other", organization="org2")
        for program in (other, *mine):
            assert (await sandbox.run(program)).json() == 1
        assert (await sandbox.run(make_program(source, app="new", organization="org3"))).json() == 1
        assert (await sandbox.run(other)).json() == 2
        assert (await sandbox.run(mine[1])).json() == 2
        assert sandbox.engine.processes <= 4


async def test_what_is_idle_for_long_ends() -> None:
    async with open_sandbox(idle_seconds=0.2) as sandbox:
        await sandbox.run("export default () => new Response()")
        while sandbox.engine.processes:
            await asyncio.sleep(0.02)


async def test_calls_of_one_organisation_at_once_are_bounded() -> None:
    async with open_sandbox(invocations_of_organisation=2) as sandbox:
        gate, program = Gate(2), make_program(WAITING)
        running = [asyncio.ensure_future(sandbox.run(program, host=gate.host)) for _ in range(2)]
        await gate.reached.wait()
        with pytest.raises(FunctionsBusy):
            await sandbox.run(program)
        gate.open()
        await asyncio.gather(*running)
        assert (await sandbox.run(program, host=gate.host)).content == b"done"
        assert sandbox.engine.invocations == 0


async def test_dropping_a_function_ends_its_process_after_what_it_does() -> None:
    async with open_sandbox() as sandbox:
        gate, program = Gate(), make_program(WAITING)
        running = asyncio.ensure_future(sandbox.run(program, host=gate.host))
        await gate.reached.wait()
        sandbox.engine.drop("app1", "f")
        gate.open()
        assert (await running).content == b"done"
        while sandbox.engine.processes:
            await asyncio.sleep(0.01)


async def test_nothing_is_left_of_a_server_that_was_killed() -> None:
    script = """
        import asyncio, sys
        from tests.runtime.functions.sandboxes import make_program, open_sandbox
        async def main():
            async with open_sandbox() as sandbox:
                await sandbox.run(make_program("export default () => new Response()"))
                busy = asyncio.ensure_future(sandbox.run(make_program("export default () => { for (;;); }")))
                while len(sandbox.engine._pool._processes) < 2:
                    await asyncio.sleep(0.01)
                print(*[each.pid for each in sandbox.engine._pool._all], flush=True)
                await busy
        asyncio.run(main())
    """
    root = Path(__file__).parents[3]
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(script), stdout=subprocess.PIPE, cwd=root
    )
    assert server.stdout is not None
    pids = [int(pid) for pid in (await server.stdout.readline()).split()]
    assert len(pids) == 2
    server.kill()
    await server.wait()
    while any(is_running(pid) for pid in pids):
        await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path("/proc", str(pid), "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_process_that_ends_by_itself_is_an_error_of_its_function(sandbox: Sandbox) -> None:
    gate = Gate()
    running = asyncio.ensure_future(sandbox.run(WAITING, host=gate.host))
    await gate.reached.wait()
    (process,) = [each for each in sandbox.engine._pool._all if each.invocations]
    os.kill(process.pid, 9)
    with pytest.raises(FunctionError) as failure:
        await running
    assert failure.value.report is not None
    assert failure.value.report.shutdown_reason == "Crashed"


async def test_a_spare_process_takes_the_next_program_and_another_comes_after_it() -> None:
    async with open_sandbox(has_spare=True) as sandbox:
        pool = sandbox.engine._pool
        assert (await sandbox.run("export default () => new Response('first')")).content == b"first"
        while pool._spare is None:
            await asyncio.sleep(0.01)
        spare = pool._spare
        assert (await sandbox.run("export default () => new Response('second')")).content == b"second"
        assert spare in pool._all
        while pool._spare is None:
            await asyncio.sleep(0.01)
        last_spare = pool._spare
    assert last_spare.has_ended
