"""What a module imports, found by deno's parser without running it."""

import asyncio
import base64
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from baobab.runtime.functions.launching import make_command
from baobab.runtime.functions.source_errors import BadSource
from baobab.runtime.functions.stacks import PROGRAM_URL

_SECONDS = 20
_SUFFIXES = {"application/typescript": ".ts", "application/javascript": ".js", "application/json": ".json"}
_MAP_MARK = "//# sourceMappingURL=data:application/json;base64,"
_IMPORTED = r"""((?:\bfrom|\bimport)\s*\(?\s*)["']{}["']"""
_PLACE = re.compile(r"\s+at \S+?:(\d+):(\d+)\s*$")


@dataclass(frozen=True, slots=True)
class ModuleImport:
    """A specifier as it is written, with its quotation marks at start to end, zero-based (line, character)."""

    specifier: str
    start: tuple[int, int]
    end: tuple[int, int]

    @property
    def line(self) -> int:
        """The line as people count it."""
        return self.start[0] + 1

    @property
    def column(self) -> int:
        """The column as people count it."""
        return self.start[1] + 1


async def find_imports(source: str, media_type: str) -> list[ModuleImport]:
    """Returns what a module imports, literal `import()` included, and what it only imports types of left out.

    Raises BadSource if the module cannot be parsed.
    """
    name = "module" + _SUFFIXES[media_type]
    output = await _run("info --json --no-config --no-lock --no-remote --no-npm", name, source)
    try:
        modules = json.loads(output)["modules"]
        module = next(each for each in modules if each["specifier"].endswith(f"/{name}"))
    except (ValueError, KeyError, StopIteration):
        raise BadSource("The source could not be read. It may be nested too deeply.") from None
    if "error" in module:
        raise read_error(module["error"])
    return _read_imports(module)


def _read_imports(module: Any) -> list[ModuleImport]:
    imports = []
    for dependency in module.get("dependencies", ()):
        if "code" in dependency:
            span = dependency["code"]["span"]
            imports.append(ModuleImport(dependency["specifier"], _read(span["start"]), _read(span["end"])))
    return imports


def rewrite(text: str, addresses: dict[ModuleImport, str | None]) -> str:
    """Writes the whole address in place of each specifier."""
    lines = text.split("\n")
    for module_import in sorted(addresses, key=lambda each: each.start, reverse=True):
        address = addresses[module_import]
        (line, begin), (last_line, end) = module_import.start, module_import.end
        if address is not None and line == last_line:
            lines[line] = lines[line][:begin] + json.dumps(address) + lines[line][end:]
    text = "\n".join(lines)
    # The parser tells only the first place of each.
    for module_import, address in addresses.items():
        if address is not None and address != module_import.specifier:
            pattern = _IMPORTED.format(re.escape(module_import.specifier))
            text = re.sub(pattern, partial(_replace_specifier, json.dumps(address)), text)
    return text


def _replace_specifier(address: str, match: re.Match[str]) -> str:
    return match[1] + address


async def find_imports_of(texts: Mapping[str, str]) -> dict[str, list[ModuleImport]]:
    """Returns what each of many modules in JavaScript imports, by the names that they have here; deno starts once.

    Raises BadSource for one that cannot be parsed.
    """
    with tempfile.TemporaryDirectory(prefix="baobab-function-") as folder:
        files = {name: f"{number}/module.js" for number, name in enumerate(texts)}
        await asyncio.to_thread(_write_all, Path(folder), {files[name]: text for name, text in texts.items()})
        entry = Path(folder, "entry.js")
        arguments = ["info", "--json", "--no-config", "--no-lock", "--no-remote", "--no-npm"]
        output = await _run_deno([*arguments, str(entry)], [Path(folder)])
    try:
        modules = {module["specifier"]: module for module in json.loads(output)["modules"]}
    except (ValueError, KeyError):
        raise BadSource("A package could not be read. It may be nested too deeply.") from None
    prefix = entry.parent.as_uri()
    found_imports = {}
    for name, file in files.items():
        module = modules.get(f"{prefix}/{file}")
        if module is None or "error" in module:
            text = "it is not there." if module is None else read_error(module["error"]).message
            raise BadSource(f"The module {name} cannot be read: {text}")
        found_imports[name] = _read_imports(module)
    return found_imports


def _write_all(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
    entry = "".join(f"import {json.dumps(f'./{name}')};\n" for name in texts)
    (folder / "entry.js").write_text(entry, encoding="utf-8")


async def transpile(source: str) -> str:
    """Returns TypeScript as JavaScript, with a map that leads the places in errors back to the source.

    deno would do this each time that it loads the module. Raises BadSource.
    """
    output = await _run("transpile --quiet --source-map=inline --no-config --no-lock", "module.ts", source)
    code, mark, map_text = output.decode().rpartition(_MAP_MARK)
    if not mark:
        raise BadSource("The source could not be read. It may be nested too deeply.")
    source_map = json.loads(base64.b64decode(map_text))
    # Neither the path of the file that it was in, nor the source once more.
    smaller_map = {
        "version": 3,
        "sources": [PROGRAM_URL],
        "names": source_map["names"],
        "mappings": source_map["mappings"],
    }
    return code + _MAP_MARK + base64.b64encode(json.dumps(smaller_map).encode()).decode() + "\n"


def read_error(text: str) -> BadSource:
    """Returns the error of a parser as one with its line and column."""
    place = _PLACE.search(text)
    # Between the message and its place, the parser shows the line.
    message = text.partition("\n")[0] if place is None else _PLACE.sub("", text).partition("\n")[0]
    message = message.removeprefix("TypeError: ")
    return BadSource(message, int(place[1]) if place else None, int(place[2]) if place else None)


def _read(position: Any) -> tuple[int, int]:
    return position["line"], position["character"]


async def _run(arguments: str, name: str, source: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="baobab-function-") as folder:
        file = Path(folder, name)
        await asyncio.to_thread(file.write_text, source, encoding="utf-8")
        return await _run_deno([*arguments.split(), str(file)], [file])


async def _run_deno(arguments: list[str], readable: list[Path]) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *make_command(arguments, readable),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise BadSource(f"The source could not be read within {_SECONDS} seconds.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output
