"""The modules of packages that a program imports, each at an address that no server has."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from baobab.runtime.functions.analysis import ModuleImport, find_imports_of, rewrite
from baobab.runtime.functions.bundle import ALIAS, Module
from baobab.runtime.functions.common_js import find_names, find_requires, is_modern, write_facade, write_loader
from baobab.runtime.functions.node_modules import NODE_MODULES
from baobab.runtime.functions.packages import (
    EMPTY,
    IMPORT_CONDITIONS,
    REQUIRE_CONDITIONS,
    Package,
    PackageStore,
    read_specifier,
)
from baobab.runtime.functions.source_errors import BadSource

_HOST = "https://npm.invalid"
_LOADER = "?load"
_MOST_MODULES = 2000
_MOST_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class _Place:
    """A file of a package."""

    package: Package
    path: str

    @property
    def address(self) -> str:
        return f"{_HOST}/{self.package.name}@{self.package.version}/{self.path}"

    @property
    def is_json(self) -> bool:
        return self.path.endswith(".json")

    def read(self) -> str:
        return self.package.files.get(self.path, b"").decode("utf-8", errors="replace")

    def is_modern(self) -> bool:
        """Returns whether it is a module with `import` and `export`."""
        if self.path.endswith((".mjs", ".cjs")):
            return self.path.endswith(".mjs")
        return self.package.manifest.get("type") == "module" or is_modern(self.read())


class ModuleMissing(BadSource):
    """A package imports what is not there. One with `require` may try to."""


class PackageModules:
    """Adds the modules of packages to those of a program."""

    def __init__(self, store: PackageStore, modules: MutableMapping[str, Module]) -> None:
        self._store = store
        self._modules = modules
        self._places: dict[str, _Place] = {}
        self._texts: dict[str, str] = {}
        self._size = 0

    async def add(self, specifier: str) -> str:
        """Adds what an `npm:` specifier leads to, with all that it imports, and returns its address.

        Raises BadSource.
        """
        specifier_parts = read_specifier(specifier)
        package = await self._store.open(specifier_parts.name, specifier_parts.range)
        entry = _Place(package, package.find(specifier_parts.subpath, IMPORT_CONDITIONS))
        waiting = [entry]
        while waiting:
            waiting = await self._add_level(waiting)
        return entry.address

    async def _add_level(self, places: list[_Place]) -> list[_Place]:
        """Adds modules, and returns those that they import."""
        new_places = {place.address: place for place in places if place.address not in self._places}
        self._places |= new_places
        if len(self._places) > _MOST_MODULES:
            raise BadSource(f"The packages have more than {_MOST_MODULES} modules. Import a bundled file instead.")
        texts = {address: place.read() for address, place in new_places.items()}
        self._size += sum(map(len, texts.values()))
        if self._size > _MOST_BYTES:
            raise BadSource(f"The imported modules have more than {_MOST_BYTES // 2**20} MB together.")
        following: list[_Place] = []
        modern_texts = {}
        for address, place in new_places.items():
            if place.is_json:
                self._modules[address] = Module(texts[address], "application/json")
            elif place.is_modern():
                modern_texts[address] = texts[address]
            else:
                following += await self._add_older(place, texts[address])
        imports = await find_imports_of(modern_texts) if modern_texts else {}
        for address, text in modern_texts.items():
            following += await self._add_modern(new_places[address], text, imports[address])
        return following

    async def _add_modern(self, place: _Place, text: str, imports: list[ModuleImport]) -> list[_Place]:
        addresses: dict[ModuleImport, str | None] = {}
        following = []
        for each in imports:
            target = await self._resolve(place, each.specifier, IMPORT_CONDITIONS)
            if isinstance(target, _Place):
                following.append(target)
            addresses[each] = target.address if isinstance(target, _Place) else target
        self._modules[place.address] = Module(rewrite(text, addresses), "application/javascript")
        return following

    async def _add_older(self, place: _Place, text: str) -> list[_Place]:
        """Adds a module with `require`: one that runs it, and one that others import."""
        following, places = [], {}
        for name in find_requires(text):
            try:
                target = await self._resolve(place, name, REQUIRE_CONDITIONS)
            except ModuleMissing as error:
                # Many try to require what they can do without.
                places[name] = ("missing", error.message)
                continue
            if not isinstance(target, _Place):
                places[name] = ("module", target)
                continue
            following.append(target)
            if target.is_json:
                places[name] = ("json", target.address)
            elif target.is_modern():
                places[name] = ("module", target.address)
            else:
                places[name] = ("load", target.address + _LOADER)
        names = sorted(await self._find_names(place, 0))
        path = f"npm:{place.package.name}@{place.package.version}/{place.path}"
        loader = write_loader(text, path, places)
        self._modules[place.address + _LOADER] = Module(loader, "application/javascript")
        facade = write_facade(place.address + _LOADER, names)
        self._modules[place.address] = Module(facade, "application/javascript")
        return following

    async def _find_names(self, place: _Place, depth: int) -> set[str]:
        names, again = find_names(place.read())
        found_names = set(names)
        for specifier in again if depth < 8 else ():
            try:
                target = await self._resolve(place, specifier, REQUIRE_CONDITIONS)
            except ModuleMissing:
                continue
            if isinstance(target, _Place) and not target.is_json and not target.is_modern():
                found_names |= await self._find_names(target, depth + 1)
        return found_names

    async def _resolve(self, importer: _Place, specifier: str, conditions: frozenset[str]) -> "_Place | str":
        """Returns where an import leads: to a file of a package, or to a module of Node. Raises BadSource."""
        package = importer.package
        if specifier.startswith("#"):
            private_specifier = package.find_private(specifier, conditions)
            if private_specifier is None:
                raise BadSource(f"The package {package.name} says nowhere what {specifier[:100]} is.")
            importer, specifier = _Place(package, "package.json"), private_specifier
        if package.leaves_out(specifier):
            return _Place(package, EMPTY)
        if specifier.startswith((".", "/")):
            path = package.find_beside(importer.path, specifier)
            if path is None:
                raise ModuleMissing(f"{importer.path} imports {specifier[:200]}, which is not in the package.")
            return _Place(package, path)
        node_name = specifier.removeprefix("node:")
        if node_name in NODE_MODULES:
            return f"node:{node_name}"
        name, _, rest = specifier.partition("/")
        if specifier.startswith("@"):
            scope_name, _, rest = rest.partition("/")
            name = f"{name}/{scope_name}"
        subpath = f"./{rest}" if rest else "."
        if name == package.name:
            return _Place(package, package.find(subpath, conditions))
        range_text = package.find_range(name)
        if range_text is None:
            raise ModuleMissing(
                f"The package {package.name}@{package.version} imports {specifier[:100]}, which functions do not have."
            )
        try:
            other = await self._store.open(name, range_text)
        except BadSource as error:
            if package.needs(name):
                raise
            raise ModuleMissing(error.message) from error
        return _Place(other, other.find(subpath, conditions))


def make_alias(address: str) -> Module:
    """Returns a module that is another one, under a further name."""
    return Module(address, ALIAS)


def list_pins(store: PackageStore) -> Mapping[str, str]:
    """Returns the packages of a program, each with the hash of what came."""
    return {f"npm:{each.name}@{each.version}": each.sha256 for each in store.packages}
