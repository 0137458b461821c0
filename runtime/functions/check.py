"""Checks a source when it is deployed, and makes one program of it and what it imports."""

import asyncio
import hashlib
import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.runtime.functions.analysis import read_error
from baobab.runtime.functions.bundle import read_bundle, write_bundle
from baobab.runtime.functions.errors import FunctionError
from baobab.runtime.functions.imports import Fetcher, PinnedImport, bundle_imports
from baobab.runtime.functions.limits import EngineLimits
from baobab.runtime.functions.packages import PackageStore
from baobab.runtime.functions.process import FunctionProcess
from baobab.runtime.functions.program import Program
from baobab.runtime.functions.python_check import check_python
from baobab.runtime.functions.source_errors import BadSource
from baobab.runtime.functions.stacks import hide_paths

_AT_ONCE = 2
_MEMORY_MB = 128
_MOST_SCHEMA = 2**16
_places: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """A source that can be run. code: what `Program.code` takes. input_schema: the JSON Schema that it exports as
    `inputSchema`, or that a schema of zod or another standard-schema library there becomes.
    """

    code: str
    sha256: str
    input_schema: dict[str, Any] | None
    imports: tuple[PinnedImport, ...]


async def check_source(
    source: str,
    language: str,
    *,
    fetch: Fetcher | None,
    store: PackageStore | None = None,
    env: Mapping[str, str] | None = None,
) -> CheckedSource:
    """Parses a source, fetches what it imports, and loads it once in the sandbox.

    fetch: gets modules by their https address; None where imports are refused. store: where packages of npm come from;
    None where there are none. env: what the module sees while it is
    loaded. Raises BadSource, and EngineUnavailable where functions cannot be run.
    """
    if language not in ("typescript", "python"):
        raise BadSource(f"Functions in {language} cannot run here. Write it in TypeScript, JavaScript or Python.")
    if "\x00" in source:
        raise BadSource("The source has a null character. It has to be text.")
    if language == "python":
        async with _find_places():
            schema = await check_python(source)
        return CheckedSource(source, hashlib.sha256(source.encode()).hexdigest(), _read_schema(schema), ())
    async with _find_places():
        bundle, imports = await bundle_imports(source, fetch, store)
        code = write_bundle(bundle)
        sha256 = hashlib.sha256(code.encode()).hexdigest()
        answer = await _load(Program("", "", "function", "typescript", code, sha256, _MEMORY_MB), env or {})
    if answer["error"] is not None:
        raise _read_load_error(answer["error"])
    if answer["entry"] is None:
        text = "The source has no handler. Add `export default async function (req, ctx) { ... }`, or export `handler`."
        raise BadSource(text)
    return CheckedSource(code, sha256, _read_schema(answer["schema"]), imports)


def _find_places() -> asyncio.Semaphore:
    return _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE))


async def _load(program: Program, env: Mapping[str, str]) -> dict[str, Any]:
    process = await FunctionProcess.start(program.memory_mb, EngineLimits(), read_bundle(program.code))
    try:
        return await process.load(program, env, wants_schema=True)
    except FunctionError as error:
        raise BadSource(f"The module could not be loaded. {error}") from error
    finally:
        process.kill("EarlyDrop")
        await process.wait_ended()


def _read_load_error(error: Any) -> BadSource:
    message, name = str(error["message"]), str(error["name"])
    problem = read_error(message)
    text = hide_paths(problem.message)
    if problem.line is not None:
        return BadSource(
            text if text.startswith(("SyntaxError", "Import")) else f"{name}: {text}", problem.line, problem.column
        )
    place = read_error(
        str(error["stack"]).partition("\n    at ")[2].join(("\n    at ", "")).partition("\n    at file")[0]
    )
    return BadSource(f"The module threw while it was loaded: {name}: {text}", place.line, place.column)


def _read_schema(schema: Any) -> dict[str, Any] | None:
    if schema is None:
        return None
    if not isinstance(schema, dict) or len(json.dumps(schema)) > _MOST_SCHEMA:
        raise BadSource(f"inputSchema has to be a JSON Schema, an object of at most {_MOST_SCHEMA} bytes.")
    return schema
