"""Modules of the older kind, with `require` and `module.exports`, as modules that can be imported."""

import json
import re
from collections.abc import Mapping, Sequence

_REQUIRE = re.compile(r"""(?<![\w$.])require\(\s*(["'])([^"'\\\n]{1,300})\1\s*\)""")
_NAMES = (
    re.compile(r"(?<![\w$.])(?:module\.)?exports\.([A-Za-z_$][\w$]*)\s*=(?!=)"),
    re.compile(r"""(?<![\w$.])(?:module\.)?exports\[["']([A-Za-z_$][\w$]*)["']\]\s*=(?!=)"""),
    re.compile(r"""Object\.defineProperty\(\s*(?:module\.)?exports\s*,\s*["']([A-Za-z_$][\w$]*)["']"""),
)
_OBJECT = re.compile(r"(?<![\w$.])module\.exports\s*=\s*\{([^{}]*)\}")
_PROPERTY = re.compile(r"\s*(?:\.\.\.\s*require\(.*|([A-Za-z_$][\w$]*)\s*(?::.*)?)", re.DOTALL)
_ESBUILD = re.compile(r"(?<![\w$.])__export\(\w+,\s*\{([^{}]*)\}\)")
_AGAIN = re.compile(
    r"""(?:module\.exports\s*=\s*|__exportStar\(\s*|__reExport\(\s*\w+\s*,\s*|\.\.\.\s*)require\(\s*["']([^"'\n]+)["']"""
)
_MODERN = re.compile(
    r"""(?:^|[;}])\s*(?:import\s*[*{"']|import\s+[\w$]|export\s*[{*]"""
    r"""|export\s+(?:default|const|let|var|function|class|async)\b)""",
    re.MULTILINE,
)
_OLDER = re.compile(r"(?<![\w$.])module\.exports\b")
_PARAMETERS = ("exports", "require", "module", "__filename", "__dirname", "global")

Names = tuple[frozenset[str], tuple[str, ...]]


def is_modern(text: str) -> bool:
    """Returns whether a text is a module with `import` or `export`."""
    return _MODERN.search(text) is not None and _OLDER.search(text) is None


def find_requires(text: str) -> list[str]:
    """Returns what a module requires by a name that is written out."""
    return list(dict.fromkeys(match[2] for match in _REQUIRE.finditer(text)))


def find_names(text: str) -> Names:
    """Returns the names that a module exports as far as its text shows them, and the modules all of whose names it
    exports again.
    """
    names = {match[1] for pattern in _NAMES for match in pattern.finditer(text)}
    for pattern in (_OBJECT, _ESBUILD):
        for object_match in pattern.finditer(text):
            names |= {
                match[1] for part in object_match[1].split(",") if (match := _PROPERTY.fullmatch(part)) and match[1]
            }
    return frozenset(names - {"default"}), tuple(dict.fromkeys(_AGAIN.findall(text)))


def write_loader(text: str, path: str, places: Mapping[str, tuple[str, str]]) -> str:
    """Returns a module that exports `load()`, which runs a text the first time and returns its `module.exports`.

    It runs when it is asked for, as with Node: modules that require each other work. places: by what the text requires,
    the kind (`load`, `module`, `json` or `missing`) and the address of the module, or what is said of a missing one.
    """
    imports, table = [], []
    for number, (name, (kind, address)) in enumerate(places.items()):
        key, source = json.dumps(name), json.dumps(address)
        if kind == "missing":
            table.append(f"{key}: () => {{ throw new Error({source}); }}")
        elif kind == "load":
            imports.append(f"import {{ load as m{number} }} from {source};")
            table.append(f"{key}: m{number}")
        elif kind == "json":
            imports.append(f'import m{number} from {source} with {{ type: "json" }};')
            table.append(f"{key}: () => m{number}")
        else:
            imports.append(f"import * as m{number} from {source};")
            default = f"m{number}.default ?? m{number}" if address.startswith("node:") else f"m{number}"
            table.append(f"{key}: () => {default}")
    body = json.dumps(f"{text}\n//# sourceURL={path}")
    return "\n".join(
        (
            *imports,
            "let module;",
            f"const places = {{ __proto__: null, {', '.join(table)} }};",
            "function require(name) {",
            "  const place = places[name];",
            "  if (!place) throw new Error(`Cannot find module '${name}'`);",
            "  return place();",
            "}",
            "export function load() {",
            "  if (module === undefined) {",
            "    module = { exports: {} };",
            f"    const run = new Function({', '.join(map(json.dumps, _PARAMETERS))}, {body});",
            f'    run.call(module.exports, module.exports, require, module, {json.dumps(path)}, "/", globalThis);',
            "  }",
            "  return module.exports;",
            "}",
        )
    )


def write_facade(address: str, names: Sequence[str]) -> str:
    """Returns the module that others import in place of one of the older kind."""
    lines = [f"import {{ load }} from {json.dumps(address)};", "const m = load();", "export default m;"]
    lines += [f"const e{number} = m?.{name};" for number, name in enumerate(names)]
    exports = ", ".join(f"e{number} as {name}" for number, name in enumerate(names))
    return "\n".join([*lines, f"export {{ {exports} }};"])
