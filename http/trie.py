"""The route trie: finds the tools of an undecoded path.

It matches the path as it was sent, because `a%2Fttl` is a key and `a/ttl` asks for a key's time to live. Fixed segments
win over parameters; a `{name:path}` parameter takes the rest of the path, except for a fixed last segment (an action).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from baobab.tools.core.binding import RegistrationError
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import BadRequest

Methods = dict[str, Tool]
PathValues = tuple[str, ...]
"""The path parameters, in the order of the path, still percent-encoded."""

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TAIL = re.compile(r"\{(\w+):path\}")


@dataclass(slots=True)
class _Tail:
    """The tools behind a parameter that takes the rest of a path."""

    methods: Methods = field(default_factory=dict)
    actions: dict[str, Methods] = field(default_factory=dict)


@dataclass(slots=True)
class _Node:
    methods: Methods = field(default_factory=dict)
    fixed_children: "dict[str, _Node]" = field(default_factory=dict)
    parameter: "_Node | None" = None
    tail: _Tail | None = None


class RouteTrie:
    def __init__(self, tools: Iterable[Tool]) -> None:
        self._root = _Node()
        for tool in tools:
            if tool.rest is not None:
                for path in (tool.rest.path, *tool.rest.also):
                    self._add(tool, tool.rest.method, path)

    def find(self, path: str) -> tuple[Methods, PathValues] | None:
        """Returns the tools of a path by method, and its path parameters; None if there is no such route."""
        segments = path[1:].split("/")
        node = self._root
        path_values: list[str] = []
        # Nearly every path has one possible route; where it has several, `_match_segments` backtracks.
        for index, segment in enumerate(segments):
            child = node.fixed_children.get(segment)
            if child is not None:
                # Below a tail, every longer path has a route: there is no way back.
                is_only_way = child.tail is not None and index + 1 < len(segments)
                if (node.parameter is not None or node.tail is not None) and not is_only_way:
                    return _match_segments(node, segments, index, tuple(path_values))
                node = child
            elif node.tail is not None and node.parameter is None:
                return _match_tail(node.tail, segments[index:], tuple(path_values))
            elif node.tail is None and node.parameter is not None and segment:
                node = node.parameter
                path_values.append(segment)
            else:
                return _match_segments(node, segments, index, tuple(path_values))
        return (node.methods, tuple(path_values)) if node.methods else None

    def list_beside(self, path: str, method: str) -> list[str]:
        """Lists the tools of a method whose paths begin like this one, up to its last segment. None are listed if the
        segment before the last is the value of a parameter, because every path with another value begins like that.
        """
        node, is_fixed = self._root, False
        for segment in path[1:].split("/")[:-1]:
            is_fixed = segment in node.fixed_children
            child = node.fixed_children[segment] if is_fixed else node.parameter
            if child is None:
                return []
            node = child
        tools = _iterate_tools(node) if is_fixed else ()
        return sorted(tool.name for tool in tools if tool.rest is not None and tool.rest.method == method)

    def _add(self, tool: Tool, method: str, path: str) -> None:
        node = self._root
        segments = path[1:].split("/")
        for index, segment in enumerate(segments):
            if segment.startswith("{"):
                if _TAIL.fullmatch(segment):
                    _add_tail(node, segments[index + 1 :], tool, method)
                    return
                if node.parameter is None:
                    node.parameter = _Node()
                node = node.parameter
            else:
                child = node.fixed_children.get(segment)
                if child is None:
                    child = node.fixed_children[segment] = _Node()
                node = child
        node.methods[method] = tool


def _iterate_tools(node: _Node) -> Iterator[Tool]:
    """Yields the tools at and below a node."""
    yield from node.methods.values()
    for child in (*node.fixed_children.values(), *filter(None, (node.parameter,))):
        yield from _iterate_tools(child)
    for methods in (node.tail.methods, *node.tail.actions.values()) if node.tail is not None else ():
        yield from methods.values()


def _add_tail(node: _Node, later_segments: list[str], tool: Tool, method: str) -> None:
    if len(later_segments) > 1:
        raise RegistrationError(f"{tool.name}: at most one fixed segment may follow a parameter that takes the rest")
    if node.tail is None:
        node.tail = _Tail()
    methods = node.tail.actions.setdefault(later_segments[0], {}) if later_segments else node.tail.methods
    methods[method] = tool


def _match_segments(
    node: _Node, segments: list[str], index: int, path_values: PathValues
) -> tuple[Methods, PathValues] | None:
    if index == len(segments):
        return (node.methods, path_values) if node.methods else None
    segment = segments[index]
    child = node.fixed_children.get(segment)
    if child is not None:
        match = _match_segments(child, segments, index + 1, path_values)
        if match is not None:
            return match
    if node.parameter is not None and segment:
        match = _match_segments(node.parameter, segments, index + 1, (*path_values, segment))
        if match is not None:
            return match
    return _match_tail(node.tail, segments[index:], path_values) if node.tail is not None else None


def _match_tail(tail: _Tail, remaining_segments: list[str], path_values: PathValues) -> tuple[Methods, PathValues]:
    action = tail.actions.get(remaining_segments[-1]) if len(remaining_segments) > 1 else None
    if action is not None:
        return action, (*path_values, "/".join(remaining_segments[:-1]))
    return tail.methods, (*path_values, "/".join(remaining_segments))


def decode_parameter(text: str) -> str:
    """Decodes a path parameter. Raises BadRequest for broken escapes, or escapes that are not UTF-8."""
    if "%" not in text and text.isascii():
        return text
    if _BROKEN_ESCAPE.search(text):
        raise BadRequest("The path has a `%` that does not begin an escape.", remediation="Write `%` as %25 in a path.")
    raw = bytes(_iterate_bytes(text))
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise BadRequest("The path has escapes that are not UTF-8.", remediation="Encode the path as UTF-8.") from exc


def _iterate_bytes(text: str) -> Iterator[int]:
    parts = text.split("%")
    yield from parts[0].encode("latin-1")
    for part in parts[1:]:
        yield int(part[:2], 16)
        yield from part[2:].encode("latin-1")
