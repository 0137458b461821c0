"""Functions are named by a verb with its object, so that they can be searched for and read without their bodies.
Variables are named by what they hold.

`told`, `asked` or `found` alone name neither who does what nor with what.
"""

import ast
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

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
ASSIGNING = re.compile(r"^.* (?:\S{0,2}=|in|as) .*$", re.MULTILINE)
"""The lines that may give a variable its value: only these are worth the slower expression below."""
ASSIGNED = re.compile(
    r"^ *([\w.*()\[\]\"', =]+)(?:: [^=!\n]+)? [^\w\s=!<>]{0,2}= |\bfor ([\w*()\[\], ]+) in |\bas ([\w*(), ]+)|(\w+) :=",
    re.MULTILINE,
)
"""Where variables get their values in formatted code, and some more places, which do no harm."""
ADJECTIVES = frozenset(
    {
        "left",  # The left operand, or the left side of a rectangle.
        "tainted",  # Whether a run has read text from outside, as the API calls it.
    }
)
"""The words that may name a variable alone."""
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


def find_vague_variables(text: str) -> Iterator[ast.Name]:
    """The variables of a module that are named by a participle alone. A class's own fields do not count: most of them
    are fields of the API.
    """
    targets = " ".join(chain.from_iterable(ASSIGNED.findall("\n".join(ASSIGNING.findall(text)))))
    if any(is_vague(name) for name in re.findall(r"(?<![.\w])\w+\b(?!\()", targets)):
        nodes = list(ast.walk(ast.parse(text)))
        fields = {target for node in nodes if isinstance(node, ast.ClassDef) for target in find_fields(node)}
        names = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        yield from (name for name in names if is_vague(name.id) and name not in fields)


def find_fields(class_: ast.ClassDef) -> Iterator[ast.expr]:
    for statement in class_.body:
        if isinstance(statement, ast.Assign):
            yield from statement.targets
        elif isinstance(statement, ast.AnnAssign):
            yield statement.target


def is_vague(name: str) -> bool:
    return name not in ADJECTIVES and is_bare_participle(name)


def is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR or (word.isalpha() and word.endswith("ed") and word.lower() not in VERBS)


def test_no_function_is_named_by_a_participle_alone() -> None:
    vague_names = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
        for layer in LAYERS
        for path in find_files(ROOT / layer)
        for function in find_participles(path.read_text())
    ]
    assert vague_names == []


def test_no_variable_is_named_by_a_participle_alone() -> None:
    vague_names = [
        f"{path.relative_to(ROOT)}:{variable.lineno} {variable.id}"
        for layer in LAYERS
        for path in find_files(ROOT / layer)
        for variable in find_vague_variables(path.read_text())
    ]
    assert vague_names == []


@pytest.mark.parametrize(
    "statement",
    [
        "found = 1",
        "found: int = 1",
        "found += 1",
        "found, self.row = 1, 2",
        "(row, found), count = (1, 2), 3",
        "[found, *_] = 1, 2",
        'rows["a"], found = 1, 2',
        "row = found = 1",
        "row = [found for found in rows]",
        "row = {key: found for key, (found, _) in rows}",
        'row = {"key": [found for found in rows if found["key"] != key]}',
        "for row, found in rows: ...",
        "for [found] in rows: ...",
        "with lock as found: ...",
        "with lock as (row, found): ...",
        "with lock as (row, (found, *rows)): ...",
        "if found := row: ...",
    ],
)
def test_a_variable_with_such_a_name_is_found(statement: str) -> None:
    module = f"class Desk:\n    def take(self):\n        {statement}\n"
    assert {variable.id for variable in find_vague_variables(module)} == {"found"}


def test_fields_attributes_and_arguments_with_such_a_name_are_no_variables() -> None:
    module = "class Row(TypedDict):\n    found: int\n    told = 1\n\n\nrow.found = store(told=1)\nfound == 1\n"
    assert list(find_vague_variables(module)) == []


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
