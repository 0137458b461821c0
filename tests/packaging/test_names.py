"""Functions are named by a verb with its object, so that they can be searched for and read without their bodies.

`told`, `asked` or `found` alone name neither who does what nor with what.
"""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("src/baobab", "http", "mcp_server", "runtime", "storage", "tools", "tests")
IRREGULAR = frozenset(
    {
        "begun",
        "borne",
        "bound",
        "broken",
        "brought",
        "built",
        "bought",
        "caught",
        "chosen",
        "come",
        "done",
        "drawn",
        "driven",
        "fallen",
        "forgotten",
        "found",
        "frozen",
        "given",
        "gone",
        "gotten",
        "grown",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "led",
        "left",
        "lent",
        "lost",
        "made",
        "meant",
        "met",
        "overridden",
        "paid",
        "proven",
        "rewritten",
        "risen",
        "said",
        "seen",
        "sent",
        "shown",
        "sold",
        "sought",
        "spent",
        "spoken",
        "stolen",
        "sworn",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "torn",
        "undone",
        "unwound",
        "withdrawn",
        "withheld",
        "won",
        "woven",
        "written",
    }
)
DEFINED = re.compile(r"\bdef\s+(\w+)")
VERBS = frozenset({"embed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"})


def find_files(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        # The package's root has links to the layers, and the clients' scripts name functions after their checks.
        folders[:] = sorted({*folders} - {"node_modules", "clients", "__pycache__"})
        yield from (Path(path, name) for name in sorted(files) if name.endswith(".py"))


def find_participles(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module that are named by a participle alone."""
    # Parsing all modules takes ten seconds, so only those are parsed in which the words stand.
    if any(is_bare_participle(name) for name in DEFINED.findall(text)):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_bare_participle(node.name):
                yield node


def is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR or (word.isalpha() and word.endswith("ed") and word not in VERBS)


def test_no_function_is_named_by_a_participle_alone() -> None:
    named = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
        for layer in LAYERS
        for path in find_files(ROOT / layer)
        for function in find_participles(path.read_text())
    ]
    assert named == []


def test_a_function_with_such_a_name_is_found_and_a_text_with_one_is_not() -> None:
    module = 'TEXT = """\ndef told() -> None: ..."""\n\n\nclass Desk:\n    async  def _asked(self) -> None: ...\n'
    assert [(function.name, function.lineno) for function in find_participles(module)] == [("_asked", 6)]


def test_the_words_that_are_banned_are_recognised() -> None:
    assert [
        name for name in ("told", "_asked", "found", "listed", "embed", "list_models") if is_bare_participle(name)
    ] == [
        "told",
        "_asked",
        "found",
        "listed",
    ]
