"""A program with everything that it imports, as one text."""

import base64
import json
from dataclasses import dataclass, field

_MARK = "// baobab: a program and the modules that it imports\n"


ALIAS = "alias"
"""The media type of a module that is another one under a further name: its source is the address of that one."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a bundle. media_type: such as `application/javascript`, or `ALIAS`."""

    source: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """entry: the program's own module. modules: those that it imports, by their address."""

    entry: Module
    modules: dict[str, Module] = field(default_factory=dict)


def write_bundle(bundle: Bundle) -> str:
    """Returns the text of a bundle."""
    modules = {url: [module.media_type, module.source] for url, module in sorted(bundle.modules.items())}
    entry = [bundle.entry.media_type, bundle.entry.source]
    return _MARK + json.dumps({"entry": entry, "modules": modules}, ensure_ascii=False)


def read_bundle(code: str) -> Bundle:
    """Returns what `write_bundle` has written. Any other text is one module in TypeScript, which is slower."""
    if not code.startswith(_MARK):
        return Bundle(Module(code, "application/typescript"))
    content = json.loads(code[len(_MARK) :])
    modules = {url: Module(source, media_type) for url, (media_type, source) in content["modules"].items()}
    media_type, source = content["entry"]
    return Bundle(Module(source, media_type), modules)


def make_import_map(base: str, bundle: Bundle) -> str:
    """Returns an import map that leads each address of a bundle to its module. base: the map of what is refused."""
    imports = json.loads(base)["imports"]
    for url, module in bundle.modules.items():
        if module.media_type != ALIAS:
            imports[url] = f"data:{module.media_type};base64,{base64.b64encode(module.source.encode()).decode()}"
    # One address for both names: what is a module of its own has a state of its own.
    aliases = {url: module.source for url, module in bundle.modules.items() if module.media_type == ALIAS}
    imports |= {url: imports[address] for url, address in aliases.items()}
    return json.dumps({"imports": imports})
