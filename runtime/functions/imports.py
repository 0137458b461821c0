"""Which imports a function may have, and where their modules come from."""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from urllib.parse import urljoin

from baobab.runtime.functions.analysis import ModuleImport, find_imports, rewrite, transpile
from baobab.runtime.functions.bundle import Bundle, Module
from baobab.runtime.functions.launching import SANDBOX
from baobab.runtime.functions.node_modules import NODE_MODULES
from baobab.runtime.functions.package_modules import PackageModules, list_pins, make_alias
from baobab.runtime.functions.packages import PackageStore
from baobab.runtime.functions.source_errors import BadSource

_MOST_MODULES = 200
_MOST_BYTES = 8 * 2**20
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FetchedModule:
    """What a Fetcher returns. url: the last address, after redirects. content_type: as the server says it."""

    url: str
    content_type: str
    text: str


Fetcher = Callable[[str], Awaitable[FetchedModule]]
"""Gets a module by its https address. Raises BadSource with a sentence if it cannot."""


@dataclass(frozen=True, slots=True)
class PinnedImport:
    """A module that became part of a program. sha256: of its text as it was fetched."""

    url: str
    sha256: str


@cache
def read_refusals() -> str:
    """Returns the import map that refuses the modules of Node that a function may not use."""
    return (SANDBOX / "imports.json").read_text(encoding="utf-8")


async def bundle_imports(
    source: str, fetch: Fetcher | None, store: PackageStore | None
) -> tuple[Bundle, tuple[PinnedImport, ...]]:
    """Fetches what a source imports, and what that imports, and returns all of it in one bundle.

    store: where packages come from; None where there are none. Raises BadSource for an import that a function may not
    have, with its place in the source.
    """
    modules: dict[str, Module] = {}
    packages = None if store is None else PackageModules(store, modules)
    pins: list[PinnedImport] = []
    imports = await find_imports(source, "application/typescript")
    waiting: list[tuple[str, str, ModuleImport | None]] = [
        (url, "The source", each) for each in imports if (url := _resolve(each, None)) is not None
    ]
    others = [each for each in waiting if not each[0].startswith("npm:")]
    if others and fetch is None:
        place = others[0][2]
        raise BadSource(
            "Modules of other servers cannot be fetched here. Put their code into the source.",
            place.line if place else None,
            place.column if place else None,
        )
    size = 0
    while waiting:
        url, importer, place = waiting.pop()
        if url in modules:
            continue
        if len(pins) >= _MOST_MODULES:
            raise BadSource(f"The source imports more than {_MOST_MODULES} modules. Import a bundled file instead.")
        if url.startswith("npm:"):
            try:
                modules[url] = make_alias(await _add_package(url, packages))
            except BadSource as error:
                line, column = (place.line, place.column) if place else (None, None)
                raise BadSource(f"{importer} imports {url}: {error.message}", line, column) from error
            continue
        assert fetch is not None
        try:
            response = await fetch(url)
        except BadSource as error:
            line, column = (place.line, place.column) if place else (None, None)
            raise BadSource(f"{importer} imports {url}: {error.message}", line, column) from error
        size += len(response.text)
        if size > _MOST_BYTES:
            raise BadSource(f"The imported modules have more than {_MOST_BYTES // 2**20} MB together.")
        pins.append(PinnedImport(url, hashlib.sha256(response.text.encode()).hexdigest()))
        media_type = _find_media_type(response)
        text = response.text
        if media_type != "application/json":
            try:
                inner = await find_imports(text, media_type)
            except BadSource as error:
                raise BadSource(f"The module {url} cannot be read: {error.message}") from error
            addresses = {each: _resolve(each, response.url) for each in inner}
            waiting += [(address, url, None) for address in addresses.values() if address is not None]
            text = rewrite(text, addresses)
            if media_type == "application/typescript":
                text, media_type = await transpile(text), "application/javascript"
        modules[url] = Module(text, media_type)
    entry = Module(await transpile(source), "application/javascript")
    if store is not None:
        pins += [PinnedImport(url, sha256) for url, sha256 in list_pins(store).items()]
    return Bundle(entry, modules), tuple(sorted(pins, key=lambda pin: pin.url))


async def _add_package(specifier: str, packages: PackageModules | None) -> str:
    """Adds a package to a program, and returns the address of what it leads to. Raises BadSource."""
    if packages is None:
        raise BadSource(
            "no registry of packages is set here. Ask the operator for BAOBAB_NPM_REGISTRY, or import the package as a"
            f" module, such as https://esm.sh/{specifier.removeprefix('npm:').lstrip('/')}."
        )
    return await packages.add(specifier)


def _resolve(module_import: ModuleImport, importer: str | None) -> str | None:
    """Returns the https address or the package that an import leads to, or None where there is nothing to fetch.

    Raises BadSource.
    """
    specifier = module_import.specifier.strip()
    if importer is not None and specifier.startswith(("./", "../", "/")):
        return urljoin(importer, specifier)
    problem = _find_problem(specifier)
    if problem is None:
        return specifier if specifier.lower().startswith(("https:", "npm:")) else None
    if importer is not None:
        raise BadSource(f"The module {importer} cannot be used. {problem}")
    raise BadSource(problem, module_import.line, module_import.column)


def _find_problem(specifier: str) -> str | None:
    """Returns what is wrong with an import, and what to do about it."""
    match = _SCHEME.match(specifier)
    scheme, rest = (match[1].lower(), specifier[match.end() :]) if match else ("", specifier)
    if scheme in ("https", "data", "npm") or (scheme == "node" and rest in NODE_MODULES):
        problem = None
    elif scheme == "node":
        names = ", ".join(sorted(NODE_MODULES))
        problem = f"{specifier} is not available in functions. Of Node's modules, these are: {names}."
    elif scheme == "jsr":
        problem = (
            f"{specifier} is not supported. Import the package as a module, such as"
            f" https://esm.sh/jsr/{rest.lstrip('/')}."
        )
    elif scheme:
        problem = f"{specifier} cannot be imported. Import modules from https addresses."
    elif specifier.startswith(("./", "../", "/")):
        problem = f"{specifier} is a relative import: a function is one file. Put its code into the source."
    elif specifier in NODE_MODULES:
        problem = f"Write node:{specifier} instead of {specifier}."
    else:
        problem = f"{specifier} has no address. Import it from https, such as https://esm.sh/{specifier}."
    return problem


def _find_media_type(response: FetchedModule) -> str:
    kind = response.content_type.partition(";")[0].strip().lower()
    path = response.url.partition("?")[0]
    if "json" in kind:
        return "application/json"
    if "typescript" in kind or path.endswith((".ts", ".mts")):
        return "application/typescript"
    return "application/javascript"
