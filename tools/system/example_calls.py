"""The examples of the documentation as calls of tools: what a page shows as `curl`, a model sends over MCP."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic_core import from_json, to_json

from baobab.tools.core import BadRequest
from baobab.tools.core.call import Tool, ToolRunner
from baobab.tools.core.spellings import read_spellings

_BASES = ("$BAOBAB", "http://127.0.0.1:8000")
_APP = ("$APP", "APP", "APP_ID")
_BODY_OPTIONS = ("-d", "--data", "--data-binary", "--json")
_VALUED_OPTIONS = (*_BODY_OPTIONS, "-X", "--request", "-H", "-o", "-w", "-F", "-u", "-c", "-b", "-T")
_END = frozenset("|;&><()")
_MOST_CALLS = 20
_SAMPLE_APP = "app_1a2b3c4d5e6f"


def list_example_calls(text: str, registry: ToolRunner) -> list[str]:
    """Returns the calls that the commands of a text make, such as `kv_get {"key":"a"}`, without the app's id. Commands
    that no tool over MCP answers are left out.
    """
    calls: dict[str, None] = {}
    for words in _find_commands(text):
        call = _read_command(words, registry)
        if call is not None:
            calls[call] = None
    return list(calls)[:_MOST_CALLS]


def _find_commands(text: str) -> Iterator[Sequence[str]]:
    """Yields the words of each `curl` of the shell blocks."""
    is_shell, command = False, ""
    for line in text.splitlines():
        if line.startswith("```"):
            is_shell, command = line.startswith("```sh"), ""
        elif is_shell and (command or not line.startswith("#")):
            command += f"{line}\n"
            try:
                lexer = shlex.shlex(command, posix=True, punctuation_chars="|;&><()")
                lexer.commenters = ""
                lexer.whitespace_split = True
                words = list(lexer)
            except ValueError:
                # A quotation goes on in the next line.
                continue
            if not line.endswith("\\"):
                yield from _split_at_curl(words)
                command = ""


def _split_at_curl(words: Sequence[str]) -> Iterator[Sequence[str]]:
    for at, word in enumerate(words):
        if word == "curl":
            rest = words[at + 1 :]
            end = next((index for index, each in enumerate(rest) if each and set(each) <= _END), len(rest))
            yield rest[:end]


def _read_command(words: Sequence[str], registry: ToolRunner) -> str | None:
    method, address, body = "", "", None
    at = 0
    while at < len(words):
        word = words[at]
        value = words[at + 1] if at + 1 < len(words) else ""
        if word in ("-X", "--request"):
            method = value
        elif word in _BODY_OPTIONS:
            body = value
        elif word.startswith(_BASES):
            address = word
        at += 2 if word in _VALUED_OPTIONS else 1
    path = next((address.removeprefix(base) for base in _BASES if address.startswith(base)), "")
    if not path.startswith("/") or (body or "").startswith("@"):
        return None
    return _build_call(method or ("GET" if body is None else "POST"), path, body, registry)


def _build_call(method: str, address: str, body: str | None, registry: ToolRunner) -> str | None:
    url = urlsplit(address)
    match = _find_tool(method, url.path, registry)
    if match is None:
        return None
    tool, arguments = match
    rest = tool.rest
    assert rest is not None
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name in rest.query_parameters:
            arguments[name] = value
        elif rest.further_query is not None:
            arguments.setdefault(rest.further_query, {})[name] = value
        else:
            return None
    try:
        content: Any = None if body is None else from_json(body)
        if rest.whole_body is not None and body is not None:
            arguments[rest.whole_body] = content
        elif isinstance(content, dict):
            arguments |= content
        arguments = read_spellings(tool, arguments)
    except (ValueError, BadRequest):
        return None
    app = {} if tool.app_parameter is None else {tool.app_parameter: _SAMPLE_APP}
    return f"{tool.name} {to_json(arguments).decode()}" if tool.names_fit({**arguments, **app}) else None


def _find_tool(method: str, path: str, registry: ToolRunner) -> tuple[Tool, dict[str, Any]] | None:
    """Returns the tool of a route and the arguments of its path. A fixed segment wins over a parameter."""
    segments = path.strip("/").split("/")
    best: tuple[int, Tool, dict[str, Any]] | None = None
    for tool in registry.tools.values():
        rest = tool.rest
        if rest is None or not tool.mcp or rest.method != method:
            continue
        for pattern in (rest.path, *rest.also):
            arguments = _match_path(pattern.strip("/").split("/"), segments, tool)
            fixed_parts = sum(not part.startswith("{") for part in pattern.split("/"))
            if arguments is not None and (best is None or fixed_parts > best[0]):
                best = fixed_parts, tool, arguments
    return None if best is None else (best[1], best[2])


def _match_path(pattern: Sequence[str], segments: Sequence[str], tool: Tool) -> dict[str, Any] | None:
    arguments: dict[str, Any] = {}
    for at, part in enumerate(pattern):
        if part.endswith(":path}"):
            rest = list(pattern[at + 1 :])
            end = len(segments) - len(rest)
            arguments[part[1:-6]] = unquote("/".join(segments[at:end]))
            return arguments if end > at and list(segments[end:]) == rest else None
        if at >= len(segments):
            return None
        if not part.startswith("{"):
            if part != segments[at]:
                return None
        elif part[1:-1] == tool.app_parameter:
            if segments[at] not in _APP:
                return None
        else:
            arguments[part[1:-1]] = unquote(segments[at])
    return arguments if len(pattern) == len(segments) else None
