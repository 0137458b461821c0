"""Every transaction that writes says whose lock it holds (docs/decisions/0025-tenant-locks.md).

On files nothing shows that a lock was forgotten, because all writers exclude each other there.
"""

import ast
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ROOMS = ("src/baobab", "storage", "runtime", "tools", "http", "mcp_server")
_WITHOUT = frozenset({"FREEZES", "job", "_job", "self"})
"""What holds a lock of its own: freezes that of the app, a job that of its row, a database as it opens."""


def test_every_transaction_that_writes_names_its_lock() -> None:
    places = []
    for room in _ROOMS:
        for path in sorted((_ROOT / room).rglob("*.py")):
            if path.is_symlink() or any(parent.is_symlink() for parent in path.parents if _ROOT in parent.parents):
                continue
            places += [f"{path.relative_to(_ROOT)}:{line}" for line in _list_unnamed(ast.parse(path.read_text()))]
    assert places == []


def _list_unnamed(tree: ast.Module) -> list[int]:
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value
        name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        if node.func.attr not in ("writing", "writing_unit") or name in _WITHOUT:
            continue
        if not any(keyword.arg == "lock" for keyword in node.keywords):
            lines.append(node.lineno)
    return lines
