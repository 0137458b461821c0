"""What a source is refused for when it is deployed, and what becomes of what it imports."""

import hashlib

import pytest

from baobab.runtime.functions.check import CheckedSource, check_source
from baobab.runtime.functions.errors import FunctionThrew
from baobab.runtime.functions.imports import FetchedModule
from baobab.runtime.functions.program import Program
from baobab.runtime.functions.source_errors import BadSource
from tests.runtime.functions.sandboxes import Sandbox

HANDLER = "\nexport default () => new Response('ok');"
CDN = {
    "https://cdn.example/a.ts": (
        "application/typescript; charset=utf-8",
        'import { b } from "./sub/b.js"; export const a: number = b + 1; export { z } from "/z.js";\n'
        'export const later = () => import("./late.js");\n'
        '/* é 😀 */ import data from "./data.json" with { type: "json" };\n'
        "export { data }; import type { Gone } from './gone.ts';",
    ),
    "https://cdn.example/sub/b.js": (
        "text/javascript",
        'import { a } from "../a.ts"; export const b = 41; export const back = () => a;',
    ),
    "https://cdn.example/z.js": ("text/javascript", "import 'node:buffer'; export const z = 'zett é';"),
    "https://cdn.example/late.js": ("application/javascript", "export const late = 'late';"),
    "https://cdn.example/data.json": ("application/json", '{"n": 7}'),
    "https://cdn.example/broken.js": ("text/javascript", "let x = ;"),
    "https://cdn.example/reads.js": ("text/javascript", "import fs from 'node:fs'; export default fs;"),
    "https://cdn.example/file.js": ("text/javascript", "import 'file:///etc/passwd';"),
    "https://cdn.example/package.js": ("text/javascript", "import 'npm:left-pad';"),
    "https://cdn.example/moved.js": ("text/javascript", "export { z } from './z.js';"),
}


async def fetch(url: str) -> FetchedModule:
    """A server of modules. One of them has moved to another folder."""
    if url not in CDN:
        raise BadSource("the server answered 404.")
    content_type, text = CDN[url]
    return FetchedModule(url.replace("moved.js", "sub/../moved.js"), content_type, text)


async def check(source: str) -> CheckedSource:
    return await check_source(source, "typescript", fetch=fetch)


def make_program(result: CheckedSource) -> Program:
    return Program("app1", "org1", "f", "typescript", result.code, result.sha256, 64)


@pytest.mark.parametrize(
    ("source", "message", "place"),
    [
        ("export default () => {\n  let x = ;\n}", "Expression expected", (2, 11)),
        ("const a: = 3", "Unexpected token", (1, 10)),
        ("let a = 1;\nlet a = 2;" + HANDLER, "already been declared", (2, 5)),
        ("export default () => { break; }", "Illegal break", (1, 24)),
        ("export default 1; export default 2", "already been declared", (1, 19)),
        (
            "import { nope } from 'node:util'; export default () => nope",
            "does not provide an export named 'nope'",
            (1, 10),
        ),
        ("import a from './a.ts'" + HANDLER, "relative import", (1, 15)),
        ("import a from '/etc/passwd' with { type: 'text' }" + HANDLER, "relative import", (1, 15)),
        ("export * from '../a.ts'" + HANDLER, "relative import", (1, 15)),
        ("export default () => import('./a.ts')", "relative import", (1, 29)),
        ("import a from 'lodash'" + HANDLER, "https://esm.sh/lodash", (1, 15)),
        ("import a from 'crypto'" + HANDLER, "Write node:crypto", (1, 15)),
        ("import a from 'node:fs'" + HANDLER, "not available in functions", (1, 15)),
        ("import a from 'node:none'" + HANDLER, "not available in functions", (1, 15)),
        ("import a from 'file:///etc/passwd' with { type: 'json' }" + HANDLER, "cannot be imported", (1, 15)),
        ("import 'http://cdn.example/a.ts'" + HANDLER, "https addresses", (1, 8)),
        ("import a from 'npm:lodash@4'" + HANDLER, "https://esm.sh/lodash@4", (1, 15)),
        ("import a from 'jsr:@std/path'" + HANDLER, "https://esm.sh/jsr/@std/path", (1, 15)),
        ("\nimport a from 'https://cdn.example/none.js'" + HANDLER, "answered 404", (2, 15)),
        ("import 'https://cdn.example/broken.js'" + HANDLER, "https://cdn.example/broken.js", (None, None)),
        ("import 'https://cdn.example/reads.js'" + HANDLER, "node:fs is not available", (None, None)),
        ("import 'https://cdn.example/file.js'" + HANDLER, "cannot be imported", (None, None)),
        ("import 'https://cdn.example/package.js'" + HANDLER, "BAOBAB_NPM_REGISTRY", (None, None)),
        ("export const x = 1", "has no handler", (None, None)),
        ("export default 'text'", "has no handler", (None, None)),
        ("", "has no handler", (None, None)),
        ("type A = string;\nthrow new Error('at once')", "Error: at once", (2, 7)),
        ("export const inputSchema = 'text'" + HANDLER, "JSON Schema", (None, None)),
        ("export default () => 1; \x00", "null character", (None, None)),
    ],
)
async def test_a_source_is_refused_with_its_place_and_what_to_do(
    source: str, message: str, place: tuple[int | None, int | None]
) -> None:
    with pytest.raises(BadSource) as failure:
        await check(source)
    assert message in failure.value.message
    assert (failure.value.line, failure.value.column) == place
    for secret in ("blob:", "baobab-function", "module.ts", "runner.js"):
        assert secret not in failure.value.message


async def test_a_checked_source_is_one_text_that_runs_and_keeps_its_places(sandbox: Sandbox) -> None:
    source = """interface A {
      a: string;
    }
    enum Size { Small }
    export default (): Response => {
      throw new Error(`no ${Size.Small}`);
    };"""
    result = await check(source)
    assert result.sha256 == hashlib.sha256(result.code.encode()).hexdigest()
    assert result.imports == ()
    with pytest.raises(FunctionThrew) as failure:
        await sandbox.run(make_program(result))
    assert failure.value.error == "Error: no 0"
    assert failure.value.stack is not None
    assert "f.ts:6:13" in failure.value.stack
    assert (await check(source)).code == result.code


async def test_https_imports_are_part_of_the_program_with_cycles_redirects_and_imports_of_their_own(
    sandbox: Sandbox,
) -> None:
    source = """import { a, z, later, data } from 'https://cdn.example/a.ts';
    import { back } from 'https://cdn.example/sub/b.js';
    import { z as moved } from 'https://cdn.example/moved.js';
    export default async () => Response.json([a, back(), z, (await later()).late, data.n, moved]);"""
    result = await check(source)
    assert [pin.url.rpartition("/")[2] for pin in result.imports] == [
        "a.ts",
        "data.json",
        "late.js",
        "moved.js",
        "b.js",
        "z.js",
    ]
    assert result.imports[2].sha256 == hashlib.sha256(CDN["https://cdn.example/late.js"][1].encode()).hexdigest()
    answer = await sandbox.run(make_program(result))
    assert answer.json() == [42, 42, "zett é", "late", 7, "zett é"]


async def test_imports_are_refused_where_nothing_is_fetched() -> None:
    with pytest.raises(BadSource, match="cannot be fetched here"):
        await check_source("import 'https://cdn.example/z.js'" + HANDLER, "typescript", fetch=None)


@pytest.mark.parametrize(
    "declaration",
    [
        "export const inputSchema = { type: 'object' }",
        "export const inputSchema = { '~standard': { jsonSchema: { input: () => ({ type: 'object' }) } } }",
        "export const inputSchema = { toJSONSchema: () => ({ type: 'object' }) }",
    ],
)
async def test_the_input_schema_is_what_the_source_exports(declaration: str) -> None:
    assert (await check(declaration + HANDLER)).input_schema == {"type": "object"}
    assert (await check(HANDLER)).input_schema is None


async def test_the_module_sees_its_environment_while_it_is_checked() -> None:
    source = "if (!Deno.env.get('KEY')) throw new Error('no key');" + HANDLER
    with pytest.raises(BadSource, match="no key"):
        await check(source)
    await check_source(source, "typescript", fetch=None, env={"KEY": "v"})
