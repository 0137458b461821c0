"""Packages of npm become part of a program when it is deployed."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pytest

from baobab.runtime.functions.check import CheckedSource, check_source
from baobab.runtime.functions.package_versions import BadRange, find_best
from baobab.runtime.functions.packages import PackageStore
from baobab.runtime.functions.program import Program
from baobab.runtime.functions.source_errors import BadSource
from tests.runtime.functions.sandboxes import Sandbox

REGISTRY = "https://packages.example"
MODERN: dict[str, Any] = {
    "package.json": {
        "type": "module",
        "exports": {
            ".": {"types": "./index.d.ts", "node": "./node.js", "import": "./index.js", "require": "./index.cjs"},
            "./parts/*": "./inner/*.js",
            "./hidden": None,
        },
        "imports": {"#inner": "./inner/a.js"},
        "dependencies": {"older": "^1.1.0", "@scope/dep": "~2.0"},
    },
    "index.js": "import older, { add, later } from 'older'; import { dep } from '@scope/dep';\n"
    "import { a } from '#inner';\n"
    "export * from './inner/a.js'; import * as again from './inner/a.js';\n"
    "export const modern = () => [add(1, 2), older.add(2, 2), later(), dep, a, again.a];",
    "index.cjs": "throw new Error('the wrong one')",
    "node.js": "throw new Error('the wrong one')",
    "inner/a.js": "export const a = 'a';",
}
OLDER: dict[str, Any] = {
    "package.json": {"main": "lib/main", "browser": {"./lib/files.js": False}},
    # They require each other, one thing that functions do not have, and one that is not there.
    "lib/main.js": "const even = require('./even'); const data = require('./data.json'); require('./files');\n"
    "let fs; try { fs = require('fs') } catch { fs = null }\n"
    "exports.add = function (a, b) { return a + b + data.zero };\n"
    "exports.later = () => [even.isEven(10), fs, require('buffer').Buffer.from('x').length, delete this.nothing];\n"
    "exports.isOdd = (n) => n !== 0 && even.isEven(n - 1);",
    "lib/even/index.js": "const main = require('../main'); exports.isEven = (n) => n === 0 || main.isOdd(n - 1);",
    "lib/data.json": '{"zero": 0}',
    "lib/files.js": "throw new Error('for servers only')",
}
PACKAGES: dict[tuple[str, str], dict[str, Any]] = {
    ("modern", "3.0.0"): MODERN,
    ("modern", "3.1.0-beta.1"): {},
    ("older", "1.0.0"): {},
    ("older", "1.2.0"): OLDER,
    ("older", "2.0.0"): {},
    ("@scope/dep", "2.0.9"): {
        "package.json": {"module": "dep.esm.js", "main": "dep.js"},
        "dep.esm.js": "export const dep = 'dep'",
    },
    ("lost", "1.0.0"): {"package.json": {"dependencies": {"none": "*"}}, "index.js": "require('none')"},
    ("disk", "1.0.0"): {"package.json": {"type": "module"}, "index.js": "import 'node:fs'"},
    ("broken", "1.0.0"): {"package.json": {"type": "module"}, "index.js": "let x = ;"},
}


def pack(files: Mapping[str, Any]) -> bytes:
    """A package as the registry has it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, text in files.items():
            encoded_text = (text if isinstance(text, str) else json.dumps(text)).encode()
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size = len(encoded_text)
            archive.addfile(entry, io.BytesIO(encoded_text))
    return gzip.compress(content.getvalue(), mtime=0)


class FakeRegistry:
    """Answers as a registry does, and notes what it was asked for."""

    def __init__(self, changes: Mapping[str, Any] | None = None) -> None:
        """changes: of what it says about each package beside its files."""
        self.paths: list[str] = []
        self._answers: dict[str, bytes] = {}
        documents: dict[str, Any] = {}
        for (name, version), files in PACKAGES.items():
            content = pack(files)
            tarball = f"{REGISTRY}/{name}/-/{version}.tgz"
            digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
            dist = {"tarball": tarball, "integrity": f"sha512-{digest}", **(changes or {})}
            document = documents.setdefault(name, {"dist-tags": {}, "versions": {}})
            document["versions"][version] = {"version": version, "dist": dist}
            if "-" not in version:
                document["dist-tags"]["latest"] = version
            self._answers[tarball] = content
        self._answers |= {f"{REGISTRY}/{name}": json.dumps(each).encode() for name, each in documents.items()}

    async def download(self, url: str, headers: Mapping[str, str]) -> bytes:
        del headers
        path = unquote(url)
        self.paths.append(path.removeprefix(REGISTRY))
        if path not in self._answers:
            raise BadSource("the registry answered 404.")
        return self._answers[path]


async def check(source: str, registry: FakeRegistry | None = None) -> CheckedSource:
    registry = registry or FakeRegistry()
    store = PackageStore(REGISTRY, registry.download)
    return await check_source(source, "typescript", fetch=None, store=store)


async def run(sandbox: Sandbox, result: CheckedSource) -> Any:
    program = Program("app1", "org1", "f", "typescript", result.code, result.sha256, 64)
    return (await sandbox.run(program)).json()


async def test_a_package_runs_with_all_that_it_needs_without_a_registry(sandbox: Sandbox) -> None:
    registry = FakeRegistry()
    result = await check(
        'import { modern, a } from "npm:modern@3"; import * as part from "npm:modern@3/parts/a";\n'
        "export default () => Response.json([modern(), a, part.a]);",
        registry,
    )
    assert sorted(set(registry.paths)) == sorted(registry.paths)
    assert await run(sandbox, result) == [[3, 4, [True, None, 1, True], "dep", "a", "a"], "a", "a"]
    pins = {pin.url: pin.sha256 for pin in result.imports}
    assert pins["npm:older@1.2.0"] == hashlib.sha256(pack(OLDER)).hexdigest()
    assert set(pins) == {"npm:modern@3.0.0", "npm:older@1.2.0", "npm:@scope/dep@2.0.9"}
    assert (await check('import "npm:modern"; export default () => 1')).sha256


async def test_a_source_without_packages_asks_no_registry() -> None:
    registry = FakeRegistry()
    await check("export default () => new Response('ok')", registry)
    assert registry.paths == []


@pytest.mark.parametrize(
    ("specifier", "message"),
    [
        ("npm:none", "answered 404"),
        ("npm:older@9", "no version of older"),
        ("npm:older@git+ssh", "by a range only"),
        ("npm:../etc", "names no package"),
        ("npm:modern/hidden", "nothing to import"),
        ("npm:modern/index.cjs", "nothing to import"),
        ("npm:lost", "answered 404"),
        ("npm:disk", "node:fs"),
        ("npm:broken", "Expression expected"),
        ("jsr:@std/path", "https://esm.sh/jsr/@std/path"),
    ],
)
async def test_what_cannot_be_imported_says_why_and_where(specifier: str, message: str) -> None:
    with pytest.raises(BadSource) as refusal:
        await check(f'import x from "{specifier}"; export default () => x')
    assert message in refusal.value.message
    assert (refusal.value.line, refusal.value.column) == (1, 15)


@pytest.mark.parametrize("integrity", ["sha512-AAAA", "", "md5-AAAA"])
async def test_a_package_is_what_the_registry_says_it_is(integrity: str) -> None:
    with pytest.raises(BadSource, match="hash"):
        await check('import "npm:older"; export default () => 1', FakeRegistry({"integrity": integrity}))


@pytest.mark.parametrize(
    ("range_text", "version"),
    [
        ("1.2.3", "1.2.3"),
        ("^1.2.0", "1.9.0"),
        ("~1.2.0", "1.2.4"),
        ("1", "1.9.0"),
        ("1.2.x", "1.2.4"),
        ("*", "2.0.0"),
        ("", "2.0.0"),
        ("^0.2.1", "0.2.5"),
        ("^0.0.3", "0.0.3"),
        (">=1.2.4 <1.9.0", "1.2.4"),
        (">= 1.2.3 < 1.2.4", "1.2.3"),
        ("1.2.3 - 1.2", "1.2.4"),
        (">1", "2.0.0"),
        ("<=1.2", "1.2.4"),
        ("^3 || ^0.2", "0.2.5"),
        ("^2.0.1-beta.1", "2.0.1-beta.2"),
        ("^3", None),
    ],
)
def test_a_range_means_its_highest_version(range_text: str, version: str | None) -> None:
    versions = ["0.0.3", "0.0.4", "0.2.1", "0.2.5", "1.2.3", "1.2.4", "1.9.0", "2.0.0", "2.0.1-beta.1", "2.0.1-beta.2"]
    assert find_best(versions, range_text) == version


@pytest.mark.parametrize("text", ["git+https://host.example/a", "file:../a", "workspace:*", "one"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(BadRange):
        find_best(["1.0.0"], text)
