"""Packages of an npm registry: which version a range means, its files, and where an import of it leads."""

import base64
import gzip
import hashlib
import io
import json
import re
import tarfile
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Any
from urllib.parse import quote

from baobab.runtime.functions.package_versions import BadRange, find_best
from baobab.runtime.functions.source_errors import BadSource

Download = Callable[[str, Mapping[str, str]], Awaitable[bytes]]
"""Gets a file by its address, with these headers. Raises BadSource with a sentence if it cannot."""

_NAME = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*", re.IGNORECASE)
_SPECIFIER = re.compile(r"npm:/?((?:@[^/@]+/)?[^/@]+)(?:@([^/]+))?(/.*)?")
_MOST_PACKAGES = 60
_MOST_UNPACKED = 64 * 2**20
_KEPT = (".js", ".mjs", ".cjs", ".json")
_GUESSES = ("", ".js", ".mjs", ".cjs", ".json", "/index.js", "/index.mjs", "/index.cjs", "/index.json")
_SHORT = {"accept": "application/vnd.npm.install-v1+json"}
IMPORT_CONDITIONS = frozenset({"deno", "worker", "import", "module", "browser", "default"})
REQUIRE_CONDITIONS = frozenset({"worker", "require", "module", "browser", "default"})
EMPTY = "empty.cjs"
"""The path of a module that a package replaces with nothing for browsers."""


@dataclass(frozen=True, slots=True)
class PackageSpecifier:
    """An import of a package. subpath: `.` or such as `./lib/a.js`."""

    name: str
    range: str
    subpath: str


def read_specifier(text: str) -> PackageSpecifier:
    """Reads `npm:@scope/name@^1.2/path`. Raises BadSource."""
    match = _SPECIFIER.fullmatch(text.strip())
    if match is None or not _NAME.fullmatch(match[1]):
        raise BadSource(f"{text[:200]} names no package. Write npm:NAME@RANGE, such as npm:zod@3.")
    rest = (match[3] or "/").rstrip("/")
    return PackageSpecifier(match[1], match[2] or "latest", f".{rest}" if rest else ".")


@dataclass(frozen=True, slots=True)
class Package:
    """A package of one version. files: those that can be imported, by their path. sha256: of the package as it came."""

    name: str
    version: str
    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]
    sha256: str

    def find(self, subpath: str, conditions: frozenset[str]) -> str:
        """Returns the path of the file to which an import from outside leads. Raises BadSource."""
        exports = self.manifest.get("exports")
        if exports is None:
            path = self._find_main(conditions) if subpath == "." else self.guess(subpath)
        else:
            target = _choose_export(exports, subpath, conditions)
            path = None if target is None else self.guess(target)
        if path is None:
            raise BadSource(f"The package {self.name}@{self.version} has nothing to import at {subpath[:200]}.")
        return self._replace_for_browsers(path)

    def find_beside(self, importer: str, specifier: str) -> str | None:
        """Returns the path of a file that another file of the package imports relatively; None if there is none."""
        path = self.guess(f"{importer.rpartition('/')[0]}/{specifier}")
        return None if path is None else self._replace_for_browsers(path)

    def find_private(self, specifier: str, conditions: frozenset[str]) -> str | None:
        """Returns to what a specifier such as `#inner` leads: a path of the package, or another specifier."""
        return _choose_export(self.manifest.get("imports") or {}, specifier, conditions)

    def find_range(self, name: str) -> str | None:
        """Returns the range of a package that this one needs; None if it does not name it."""
        for kind in ("dependencies", "optionalDependencies", "peerDependencies"):
            ranges = self.manifest.get(kind)
            if isinstance(ranges, dict) and isinstance(ranges.get(name), str):
                return str(ranges[name])
        return None

    def needs(self, name: str) -> bool:
        """Returns whether the package cannot do without another one."""
        needed_packages = self.manifest.get("dependencies")
        return isinstance(needed_packages, dict) and name in needed_packages

    def leaves_out(self, specifier: str) -> bool:
        """Returns whether the package does without a module in browsers."""
        browser = self.manifest.get("browser")
        return isinstance(browser, dict) and browser.get(specifier) is False

    def guess(self, path: str) -> str | None:
        """Returns the path of a file that is named as programs for Node name it, without its ending."""
        base = normpath(f"/{path}").lstrip("/")
        return next((base + ending for ending in _GUESSES if base + ending in self.files), None)

    def _find_main(self, conditions: frozenset[str]) -> str | None:
        browser = self.manifest.get("browser")
        names = [self.manifest.get("module")] if "import" in conditions else []
        for name in (*names, browser, self.manifest.get("main"), "index.js"):
            if isinstance(name, str) and (path := self.guess(name)) is not None:
                return path
        return None

    def _replace_for_browsers(self, path: str) -> str:
        browser = self.manifest.get("browser")
        if not isinstance(browser, dict) or (replacement := browser.get(f"./{path}")) is None:
            return path
        return EMPTY if replacement is False else self.guess(str(replacement)) or path


def _choose_export(exports: Any, subpath: str, conditions: frozenset[str]) -> str | None:
    """Returns the target of a subpath in the `exports` or `imports` of a package; None if it has none."""
    if not isinstance(exports, dict) or not any(key[:1] in (".", "#") for key in exports):
        exports = {".": exports}
    if subpath in exports:
        return _choose_target(exports[subpath], conditions, "")
    patterns = [key for key in exports if key.count("*") == 1]
    for pattern in sorted(patterns, key=lambda key: len(key.partition("*")[0]), reverse=True):
        before, _, after = pattern.partition("*")
        if subpath.startswith(before) and subpath.endswith(after) and len(subpath) > len(before) + len(after):
            return _choose_target(exports[pattern], conditions, subpath[len(before) : len(subpath) - len(after)])
    return None


def _choose_target(target: Any, conditions: frozenset[str], star: str) -> str | None:
    if isinstance(target, str):
        return target.replace("*", star)
    if isinstance(target, dict):
        choices = [each for condition, each in target.items() if condition in conditions]
    else:
        choices = target if isinstance(target, list) else []
    return next((path for each in choices if (path := _choose_target(each, conditions, star)) is not None), None)


class PackageStore:
    """The packages of one program. Each is fetched once; a version that is there is taken again where it fits."""

    def __init__(self, registry: str, download: Download) -> None:
        """registry: the address of the registry."""
        self._registry = registry.rstrip("/")
        self._download = download
        self._packages: dict[tuple[str, str], Package] = {}
        self._documents: dict[str, Any] = {}
        self._size = 0

    @property
    def packages(self) -> list[Package]:
        return list(self._packages.values())

    async def open(self, name: str, range_text: str) -> Package:
        """Returns a package of the best version in a range. Raises BadSource."""
        if range_text.startswith("npm:"):
            other = read_specifier(range_text)
            name, range_text = other.name, other.range
        if not _NAME.fullmatch(name):
            raise BadSource(f"{name[:100]} is no name of a package.")
        try:
            present_version = find_best([version for each, version in self._packages if each == name], range_text)
            if present_version is not None and range_text != "latest":
                return self._packages[name, present_version]
            document = await self._read_document(name)
            version = _choose_version(document, range_text)
        except BadRange:
            raise BadSource(f"{name}@{range_text[:100]}: packages come from the registry, by a range only.") from None
        if version is None:
            raise BadSource(f"The registry has no version of {name} that fits {range_text[:100]}.")
        if (name, version) not in self._packages:
            self._packages[name, version] = await self._fetch(name, version, document["versions"][version])
        return self._packages[name, version]

    async def _read_document(self, name: str) -> Any:
        if name not in self._documents:
            content = await self._download(f"{self._registry}/{quote(name, safe='@')}", _SHORT)
            try:
                document = json.loads(content)
            except ValueError:
                document = None
            if not isinstance(document, dict) or not isinstance(document.get("versions"), dict):
                raise BadSource(f"The registry's answer about {name} cannot be read.")
            self._documents[name] = document
        return self._documents[name]

    async def _fetch(self, name: str, version: str, entry: Any) -> Package:
        if len(self._packages) >= _MOST_PACKAGES:
            raise BadSource(f"The source needs more than {_MOST_PACKAGES} packages. Import a bundled file instead.")
        dist = entry.get("dist") if isinstance(entry, dict) else None
        if not isinstance(dist, dict) or not isinstance(dist.get("tarball"), str):
            raise BadSource(f"The registry says nowhere where {name}@{version} is.")
        content = await self._download(dist["tarball"], {})
        _require_integrity(f"{name}@{version}", content, dist)
        files, size = await to_thread(_unpack, f"{name}@{version}", content, _MOST_UNPACKED - self._size)
        self._size += size
        try:
            manifest = json.loads(files.get("package.json", b""))
        except ValueError:
            manifest = None
        if not isinstance(manifest, dict):
            raise BadSource(f"The package {name}@{version} has no package.json that can be read.")
        return Package(name, version, manifest, files, hashlib.sha256(content).hexdigest())


def _choose_version(document: Any, range_text: str) -> str | None:
    tags, versions = document.get("dist-tags") or {}, document["versions"]
    if tags.get(range_text) in versions:
        return str(tags[range_text])
    latest = tags.get("latest")
    # As npm does: the newest that is meant for everybody, if it fits.
    return find_best([str(latest)] if latest in versions else [], range_text) or find_best(versions, range_text)


def _require_integrity(package: str, content: bytes, dist: Mapping[str, Any]) -> None:
    """Raises BadSource unless a package has the hash that the registry says."""
    for word in str(dist.get("integrity") or "").split():
        algorithm, _, digest = word.partition("-")
        if algorithm in ("sha512", "sha384", "sha256"):
            actual_digest = base64.b64encode(hashlib.new(algorithm, content).digest()).decode()
            if actual_digest == digest.partition("?")[0]:
                return
            raise BadSource(f"The package {package} is not what the registry says: its hash differs.")
    raise BadSource(f"The registry has no hash of {package} by which it could be checked.")


def _unpack(package: str, content: bytes, most: int) -> tuple[dict[str, bytes], int]:
    """Returns the files of a package that can be imported, and the size of all of them."""
    files: dict[str, bytes] = {}
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as unzipper:
            plain = unzipper.read(most + 1)
        if len(plain) > most:
            raise BadSource(f"The packages have more than {_MOST_UNPACKED // 2**20} MB together.")
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for member in archive:
                path = normpath(member.name).partition("/")[2]
                if member.isfile() and path.endswith(_KEPT) and (reader := archive.extractfile(member)) is not None:
                    files[path] = reader.read()
    except (OSError, EOFError, tarfile.TarError, ValueError) as exc:
        raise BadSource(f"The package {package} cannot be unpacked.") from exc
    return files, len(plain)
