"""Functions are named by a verb with its object, so that they can be searched for and read without their bodies.

`told`, `asked` or `found` alone name neither who does what nor with what.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("src/baobab", "http", "mcp_server", "runtime", "storage", "tools", "tests")
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
VERBS = frozenset({"embed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"})


def find_functions(folder: Path) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sorted(folder.rglob("*.py")):
        # The package's root has links to the other rooms, and the clients' scripts name functions after their checks.
        if {"node_modules", "clients"} & set(path.parts) or path.resolve() != path:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR or (word.isalpha() and word.endswith("ed") and word not in VERBS)


def test_no_function_is_named_by_a_participle_alone() -> None:
    named = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
        for room in ROOMS
        for path, function in find_functions(ROOT / room)
        if is_bare_participle(function.name)
    ]
    assert named == []


def test_the_words_that_are_banned_are_recognised() -> None:
    assert [
        name for name in ("told", "_asked", "found", "listed", "embed", "list_models") if is_bare_participle(name)
    ] == [
        "told",
        "_asked",
        "found",
        "listed",
    ]
