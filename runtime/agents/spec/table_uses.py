"""The tables and columns that the nodes of a graph name, as far as the graph says before it runs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from baobab.runtime.agents.spec.issue import Path
from baobab.runtime.agents.spec.spec import GraphSpec, MapNode, ToolNode
from baobab.tools.core.call import ToolRunner

_TOOLSET, _BATCH = "data", "data_batch"
_WRITTEN, _FILTERED = ("values", "changes"), ("where",)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_COLUMNS = frozenset(["and", "or", "not", "select", "order", "limit", "offset"])
"""Keys of filters that are no columns."""


@dataclass(frozen=True, slots=True)
class TableUse:
    """One use of a table. `path` leads to its name, and each of the `columns` to its own.

    is_open: whether it writes values of which only the run says the columns.
    """

    node_id: str
    path: Path
    table: str
    columns: tuple[tuple[Path, str], ...]
    is_open: bool


def list_table_uses(spec: GraphSpec, registry: ToolRunner) -> Iterator[TableUse]:
    """Lists the tables that nodes name without placeholders. What a model calls is not known before it does."""
    for node_id, node in spec.nodes.items():
        if not isinstance(node, ToolNode | MapNode) or node.tool_ref.source != "builtin":
            continue
        registration = registry.find_for_graphs(node.tool_ref.name)
        if registration is None or registration[0].toolset.name != _TOOLSET:
            continue
        tool, graph_name = registration
        path: Path = ("nodes", node_id, "args_template")
        if tool.name == _BATCH:
            writes: Any = node.args_template.get("writes")
            for index, write in enumerate(writes if isinstance(writes, list) else ()):
                if isinstance(write, Mapping):
                    yield from _find_use(node_id, (*path, "writes", index), write, {})
        else:
            yield from _find_use(node_id, path, node.args_template, graph_name.arguments)


def _find_use(node_id: str, path: Path, values: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[TableUse]:
    """names: the graph's names of arguments, by the tool's."""
    table = values.get(names.get("table", "table"))
    if not is_fixed(table):
        return
    columns: list[tuple[Path, str]] = []
    is_open = False
    for argument in (*_WRITTEN, *_FILTERED):
        name = names.get(argument, argument)
        rows = values.get(name)
        is_open = is_open or (argument in _WRITTEN and isinstance(rows, str))
        for place, row in _list_rows((*path, name), rows):
            columns += [((*place, key), key) for key in row if argument in _WRITTEN or _is_column(key)]
    yield TableUse(node_id, (*path, names.get("table", "table")), str(table), tuple(columns), is_open)


def _list_rows(path: Path, value: Any) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for index, row in enumerate(value if isinstance(value, list) else ()):
        if isinstance(row, Mapping):
            yield (*path, index), row
    if isinstance(value, Mapping):
        yield path, value


def _is_column(key: str) -> bool:
    return _PLAIN.fullmatch(key) is not None and key not in _NO_COLUMNS


def is_fixed(value: Any) -> bool:
    """Returns whether an argument is a text without placeholders."""
    return isinstance(value, str) and "{{" not in value
