"""What a hostile function tries, and that nothing of it works. Each is tried with all walls, in the processes that the
engine starts.
"""

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from baobab.runtime.functions.errors import FunctionThrew
from baobab.runtime.functions.frames import CALL_BIT, Kind, pack_frame
from baobab.runtime.functions.imports import read_refusals
from baobab.runtime.functions.launching import SANDBOX, find_deno
from baobab.runtime.functions.node_modules import NODE_MODULES
from baobab.runtime.functions.walls import Walls, find_walls
from tests.runtime.functions.sandboxes import Sandbox, TableHost, make_program, make_request

DENIED = re.compile(
    "is not a function|is not defined|not a constructor|not an object|Cannot read properties of undefined|"
    "not available in functions|Requires (read|import|net|run|ffi|env|write|sys)|NotCapable|permission|"
    "Importing ext: modules|is not supported|--no-npm|Unsupported scheme|not a dependency|does not provide|"
    "Module not found|Nothing is reached from here"
)

TRIES = [
    "Deno.readTextFile('{file}')",
    "Deno.env.set('A', 'b')",
    "new Deno.Command('/bin/sh').output()",
    "Deno.dlopen('/lib/x86_64-linux-gnu/libc.so.6', {})",
    "Deno.listen({ port: 0 })",
    "Deno.connect({ hostname: '127.0.0.1', port: 80 })",
    "Deno.writeTextFile('/tmp/x', 'y')",
    "Deno.stdout.writeSync(new Uint8Array(1))",
    "Deno.exit(3)",
    "close()",
    "process.exit(3)",
    "process.getBuiltinModule('fs').readFileSync('{file}')",
    "process.binding('fs')",
    "import('{url}', { with: { type: 'json' } })",
    "import('file:' + '//{file}', { with: { type: 'json' } })",
    "import('file:///proc/self/environ', { with: { type: 'text' } })",
    "import(new URL('{file}', 'file:///').href)",
    "import('node:fs').then((fs) => fs.readFileSync('{file}'))",
    "import('node:' + 'fs').then((fs) => fs.writeSync(1, 'frame'))",
    "import('node:fs/promises')",
    "import('NODE:fs')",
    "import('node:module').then((m) => m.createRequire('file:///')('fs'))",
    "import('node:child_process')",
    "import('node:worker_threads')",
    "import('node:vm')",
    "import('node:net')",
    "import('node:http')",
    "import('node:dgram')",
    "import('node:os')",
    "import('node:process')",
    "import('node:sqlite')",
    "import('node:inspector')",
    "import('node:repl')",
    "import('node:v8')",
    "import('npm:lodash')",
    "import('jsr:@std/fs')",
    "import('https://esm.example/x.js')",
    "import('http://127.0.0.1/x.js')",
    "import('./runner.js')",
    "import('ext:core/mod.js')",
    "import('ext:deno_node/fs.ts')",
    'import(\'data:text/javascript,import x from "{url}" with { type: "json" }; export default x\')',
    'import(URL.createObjectURL(new Blob([\'import x from "{url}" with { type: "json" }; export default x\'], '
    "{ type: 'text/javascript' })))",
    "import('data:text/javascript,export * from \"node:fs\"').then((fs) => fs.readFileSync('{file}'))",
    "new Worker('data:text/javascript,Deno.exit(1)', { type: 'module' })",
    "new SharedWorker('data:text/javascript,1')",
    "new WebSocket('ws://127.0.0.1:1')",
    "new EventSource('http://127.0.0.1:1')",
    "new BroadcastChannel('x').postMessage(1)",
    "localStorage.setItem('a', 'b')",
    "sessionStorage.setItem('a', 'b')",
    "caches.open('a')",
    "indexedDB.open('a')",
    "Deno.openKv()",
    "navigator.gpu.requestAdapter()",
    "prompt('x')",
    "alert('x')",
    "require('fs')",
    "fetch('{url}')",
    "fetch('http://127.0.0.1:1/')",
    "fetch('http://169.254.169.254/latest/meta-data/')",
    "fetch('unix:/var/run/docker.sock')",
    "Deno[Deno.internal].core.ops.op_read_sync(0)",
    "globalThis.__bootstrap.core",
    "globalThis[Object.getOwnPropertySymbols(globalThis).find((s) => s.description === 'Deno.internal')].core",
    "console[Symbol.for('x')].constructor",
]
"""What a program tries: {file} is a path, {url} its address."""


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that no function may read."""
    file = tmp_path_factory.mktemp("secrets") / "secret.json"
    file.write_text('{"secret": "s3cr3t-value"}')
    return file


@pytest.mark.parametrize("tried", TRIES)
async def test_what_a_function_may_not_do_fails_inside_of_it(sandbox: Sandbox, secret: Path, tried: str) -> None:
    # One program has them all, so that all are tried in one process.
    tries = ",\n".join(f"async () => ({each})" for each in TRIES).replace("{file}", str(secret))
    source = f"""const tries = [{tries.replace("{url}", secret.as_uri())}];
    export default async (req) => {{
      try {{ return Response.json({{ value: (await tries[Number(req.headers.get('number'))]()) ?? null }}); }}
      catch (error) {{ return Response.json({{ error: String(error?.message ?? error) }}); }}
    }}"""
    answer = (await sandbox.run(source, make_request(number=str(TRIES.index(tried))))).json()
    assert "error" in answer, answer
    assert "s3cr3t" not in str(answer)
    assert DENIED.search(answer["error"]), answer


async def test_a_static_import_of_a_file_is_refused(sandbox: Sandbox, secret: Path) -> None:
    for path in (secret.as_uri(), str(secret), f"file://localhost{secret}", f"FILE://{secret}"):
        source = f'import found from "{path}" with {{ type: "json" }}; export default () => Response.json(found);'
        with pytest.raises(FunctionThrew) as failure:
            await sandbox.run(source)
        assert "s3cr3t" not in str(failure.value)


@pytest.mark.parametrize(
    "reach", ["eval", "new Function", "(async () => {}).constructor", "(function* () {}).constructor"]
)
async def test_code_made_from_text_has_no_more_than_other_code(sandbox: Sandbox, reach: str) -> None:
    answer = await sandbox.evaluate(f"typeof ({reach}('return typeof Deno?.readTextFile')?.() ?? undefined)")
    assert "function" not in str(answer)


async def test_the_globals_are_those_that_were_chosen(sandbox: Sandbox) -> None:
    names = (await sandbox.evaluate("Object.getOwnPropertyNames(globalThis)"))["value"]
    for name in (
        "Worker",
        "localStorage",
        "sessionStorage",
        "caches",
        "Cache",
        "navigator",
        "WebSocket",
        "close",
        "alert",
        "GPU",
        "nodeBootstrap",
    ):
        assert name not in names
    assert (await sandbox.evaluate("Reflect.ownKeys(Deno)"))["value"] == ["env"]
    symbols = (await sandbox.evaluate("Object.getOwnPropertySymbols(globalThis).map(String)"))["value"]
    assert "Symbol(Deno.internal)" not in symbols


async def test_every_module_of_node_is_either_harmless_or_refused(sandbox: Sandbox) -> None:
    """deno's own list, read by a program that has the module for it, which no function has."""
    script = "import m from 'node:module'; console.log(JSON.stringify(m.builtinModules))"
    process = await asyncio.create_subprocess_exec(
        find_deno(), "eval", "--no-config", script, stdout=asyncio.subprocess.PIPE, env={"DENO_DIR": "/proc/none"}
    )
    output, _ = await process.communicate()
    refusals = json.loads(read_refusals())["imports"]
    for name in json.loads(output):
        bare = name.removeprefix("node:")
        assert (bare in NODE_MODULES) != (f"node:{bare}" in refusals), name


async def test_the_process_has_nothing_of_the_server(sandbox: Sandbox) -> None:
    program = make_program("export default async (req, ctx) => { await ctx.kv.get('look'); return new Response(); }")
    processes = {}

    def look(key: object) -> None:
        for pid in find_functions():
            processes[pid] = {
                "environment": Path("/proc", str(pid), "environ").read_bytes(),
                "folder": str(Path("/proc", str(pid), "cwd").readlink()),
                "files": {str(path.readlink()) for path in Path("/proc", str(pid), "fd").iterdir()},
                "status": Path("/proc", str(pid), "status").read_text(),
            }

    await sandbox.run(program, host=TableHost({"kv.get": look}))
    assert processes
    for pid, process in processes.items():
        assert b"PATH" not in process["environment"]
        assert b"HOME" not in process["environment"]
        assert process["folder"] == "/"
        for file in map(str, process["files"]):
            # The last is a folder that it cannot read through: it is only kept open.
            assert file.startswith(("pipe:", "socket:", "anon_inode:", "/dev/", f"/proc/{pid}")), file
        assert "NoNewPrivs:\t1" in process["status"]
        assert "Seccomp:\t2" in process["status"]


def find_functions() -> Iterator[int]:
    """The children of this process that run functions."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command, status = (folder / "cmdline").read_bytes(), (folder / "status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if b"runner.js" in command and f"PPid:\t{os.getpid()}\n" in status:
                yield int(folder.name)


POLLUTION = """
const define = Reflect.defineProperty, find = Reflect.getOwnPropertyDescriptor;
const PolluteError = Error, broken = function () { throw new PolluteError('polluted'); };
const methods = [
  Array.prototype, ['push', 'map', 'forEach', 'join', 'slice', 'shift', 'splice'],
  Map.prototype, ['get', 'set', 'has', 'delete', 'forEach'], Set.prototype, ['add', 'has', 'delete', 'forEach'],
  Promise.prototype, ['then', 'catch', 'finally'], Promise, ['resolve', 'reject', 'all', 'race'],
  String.prototype, ['slice', 'split', 'replace', 'startsWith', 'toString'], Function.prototype, ['apply', 'bind'],
  Object, ['keys', 'entries', 'freeze', 'defineProperty', 'getPrototypeOf'], Reflect, ['apply', 'construct', 'ownKeys'],
  JSON, ['parse', 'stringify'], Object.getPrototypeOf(Uint8Array.prototype), ['set', 'subarray', 'slice', 'copyWithin'],
  DataView.prototype, ['getUint32', 'setUint32'], TextEncoder.prototype, ['encode'], TextDecoder.prototype, ['decode'],
  ReadableStream.prototype, ['getReader', 'cancel'], ReadableStreamDefaultReader.prototype, ['read', 'cancel'],
  Headers.prototype, ['forEach', 'entries'], AbortController.prototype, ['abort'], Math, ['min'], Date, ['now'],
  EventTarget.prototype, ['addEventListener'], Blob.prototype, ['arrayBuffer'],
];
const getters = [
  Response.prototype, ['status', 'headers', 'body'], Request.prototype, ['method', 'url', 'headers', 'body'],
  AbortController.prototype, ['signal'],
];
const fields = [
  'id', 'kind', 'type', 'over', 'credit', 'has_body', 'member', 'stopped', 'ended', 'failure', 'background', 'settled',
];
const constructors = [
  'Promise', 'Map', 'Set', 'Uint8Array', 'Response', 'Request', 'Headers', 'Error', 'ReadableStream', 'AbortController',
];
const pollute = (target, name, value) => define(target, name, { value, writable: true, configurable: true });
globalThis.KeptResponse = Response;
for (let at = 0; at < getters.length; at += 2) for (let of_ = 0; of_ < getters[at + 1].length; of_++)
  define(getters[at], getters[at + 1][of_], { get: broken, configurable: true });
for (let at = 0; at < methods.length; at += 2) for (let of_ = 0; of_ < methods[at + 1].length; of_++)
  if (find(methods[at], methods[at + 1][of_])) pollute(methods[at], methods[at + 1][of_], broken);
for (let at = 0; at < constructors.length; at++) globalThis[constructors[at]] = broken;
for (let at = 0; at < fields.length; at++) pollute(Object.prototype, fields[at], 'polluted');
"""


async def test_a_program_that_changes_every_prototype_does_not_change_the_runner(sandbox: Sandbox) -> None:
    source = (
        POLLUTION
        + """export default async (req, ctx) => {
      console.log('still a line');
      const rows = await ctx.db.query('select 1');
      return new KeptResponse('answer ' + rows.count, { status: 203 });
    }"""
    )
    host = TableHost({"db.query": {"count": 2}})
    for _ in range(2):
        result = await sandbox.run(source, host=host)
        assert (result.status, result.content) == (203, b"answer 2")
        assert [line.message for line in result.report.logs] == ["still a line"]
    # Another program has a process of its own, and nothing of this one.
    assert (await sandbox.run("export default () => new Response([1, 2].map((x) => x * 2).join())")).content == b"2,4"


@pytest.mark.parametrize("value", ["'a\\r\\nx-evil: 1'", "'a\\nb'", "'a\\0b'"])
async def test_a_header_cannot_begin_another_one(sandbox: Sandbox, value: str) -> None:
    with pytest.raises(FunctionThrew):
        await sandbox.run(f"export default () => new Response('', {{ headers: {{ 'x-a': {value} }} }})")


async def test_headers_of_the_connection_are_left_out(sandbox: Sandbox) -> None:
    source = """export default () => new Response('abc', { headers: {
      'content-length': '1', 'transfer-encoding': 'chunked', connection: 'close', 'x-kept': '1' } })"""
    result = await sandbox.run(source)
    assert {name for name, _ in result.headers} == {"content-type", "x-kept"}


async def test_the_stack_of_an_error_has_no_path_and_no_secret_of_the_server(sandbox: Sandbox) -> None:
    answer = await sandbox.evaluate("new Error('x').stack")
    assert str(SANDBOX) not in str(
        await sandbox.evaluate("(() => { try { null.x } catch (e) { return e.message } })()")
    )
    with pytest.raises(FunctionThrew) as failure:
        await sandbox.run(
            "export default async (req, ctx) => { const e = new Error('see ' + new Error().stack); throw e; }"
        )
    for text in (str(failure.value), str(failure.value.stack)):
        assert "file://" not in text
        assert "runner.js" not in text
    assert answer


async def test_another_programs_storage_is_not_there(sandbox: Sandbox) -> None:
    writing = "export default () => { globalThis.shared = 'left here'; return new Response(); }"
    await sandbox.run(writing)
    reading = "export default () => Response.json([globalThis.shared ?? null, typeof localStorage, typeof caches])"
    assert (await sandbox.run(reading)).json() == [None, "undefined", "undefined"]


@pytest.mark.parametrize(
    "forged",
    [
        b"\xff" * 64,
        pack_frame(Kind.HEAD, 1, b'{"status": 200, "headers": [["x-a", "1\\r\\nset-cookie: a=b"]], "has_body": false}'),
        pack_frame(Kind.HEAD, 1, b'{"status": 200, "headers": [["x-a\\r\\nb", "1"]], "has_body": false}'),
        pack_frame(Kind.HEAD, 1, b'{"status": 100, "headers": [], "has_body": false}'),
        pack_frame(Kind.HEAD, 1, b'{"status": true, "headers": [], "has_body": false}'),
        pack_frame(Kind.HEAD, 1, b'{"status": 200}'),
        pack_frame(Kind.HEAD, 1, b"[" * 100_000),
        pack_frame(Kind.DATA, 1, b"before the head"),
        pack_frame(Kind.START, 1, b"{}"),
        pack_frame(Kind.LOADED, 0, b"{}"),
        pack_frame(Kind.LOG, 1, b'{"level": "shout", "message": "a", "at": 1}'),
        pack_frame(Kind.CREDIT, 1, b"12"),
        pack_frame(Kind.CALL, CALL_BIT + 9, b'{"invocation": 1, "member": 7, "arguments": [], "acting": null}'),
        pack_frame(
            Kind.CALL, CALL_BIT + 9, b'{"invocation": 1, "member": "db.query", "arguments": [], "acting": ["service"]}'
        ),
    ],
)
async def test_frames_that_the_runner_does_not_send_end_the_process(sandbox: Sandbox, forged: bytes) -> None:
    """Written as if the program had found the pipe: here, its bytes are given to what reads it."""
    is_reached = asyncio.Event()

    async def wait() -> None:
        is_reached.set()
        await asyncio.Event().wait()

    program = make_program("export default async (req, ctx) => { await ctx.kv.get('x'); return new Response(); }")
    running = asyncio.ensure_future(sandbox.run(program, host=TableHost({"kv.get": lambda key: wait()})))
    await is_reached.wait()
    (process,) = [each for each in sandbox.engine._pool._all if each.invocations]
    process.pipe_data_received(1, forged)
    with pytest.raises(FunctionThrew, match="wrote to the pipe"):
        await running


def test_a_wall_that_is_missing_is_said() -> None:
    assert [text.partition(" ")[0] for text in Walls(0, seccomp=False, accounting=False).describe()] == [
        "Landlock",
        "Filters",
        "Memory",
    ]
    assert find_walls().describe() == []
