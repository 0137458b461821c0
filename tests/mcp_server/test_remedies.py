"""Whoever obeys a remedy literally loses nothing: no rows, keys, files or users."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from baobab.tools import toolsets
from baobab.tools.core.call import Tool
from baobab.tools.core.registry import Registry
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool, read_refusal

_ROOT = Path(__file__).parents[2]
_ROOMS = ("tools", "mcp_server", "runtime", "http")
_WHOLE = "/mcp?toolsets=all"
_ASKS = re.compile(r"\b(ask|asks|only if|keep|note|need no longer|if nobody)\b", re.IGNORECASE)
_NAMES = ("remediation", "remedy", "user_remedy")
_OWN = {"auth_totp_remove", "auth_passkey_delete"}
"""What people do with their own second factor, after they have been told to."""


def list_remedies() -> Iterator[tuple[str, str]]:
    """Every remedy in the code, with its place. What is filled in at run time stands as `{}`."""
    for room in _ROOMS:
        for path in (_ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                values: list[ast.expr] = []
                name = node.arg if isinstance(node, ast.keyword) else None
                if isinstance(node, ast.Assign):
                    name = getattr(node.targets[0], "id", None)
                if isinstance(node, ast.keyword | ast.Assign) and (name or "").strip("_").lower() in _NAMES:
                    values.append(node.value)
                for value in values:
                    text = "".join(_list_texts(value))
                    if text:
                        yield f"{path.relative_to(_ROOT)}:{value.lineno}", text


def _list_texts(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            for part in parts:
                yield part.value if isinstance(part, ast.Constant) else "{}"  # type: ignore[misc]
        case ast.IfExp(body=body, orelse=otherwise):
            yield from _list_texts(body)
            yield from _list_texts(otherwise)
        case ast.BinOp(left=left, right=right):
            yield from _list_texts(left)
            yield from _list_texts(right)


def find_named_tools(text: str, tools: Mapping[str, Tool]) -> list[Tool]:
    return [tools[name] for name in re.findall(r"op:([a-z][a-z0-9_]*)", text) if name in tools]


def test_no_remedy_begins_with_what_destroys_and_each_that_names_it_asks_first() -> None:
    tools = Registry(toolsets()).tools
    remedies = list(list_remedies())
    assert len(remedies) > 300
    for place, text in remedies:
        destructive_names = {
            tool.name for tool in find_named_tools(text, tools) if tool.effect == "destructive"
        } - _OWN - {"data_undo"}  # fmt: skip
        if destructive_names:
            assert _ASKS.search(text), f"{place}: {text}"
        words = text.split(maxsplit=1)[0].strip("`,.").lower()
        assert words not in ("delete", "drop", "flush", "erase", "overwrite"), f"{place}: {text}"
        assert "if that is what you want" not in text, place


async def count_all(baobab: Baobab, app_id: str) -> dict[str, int]:
    """How many rows, keys, files, users and agents the app has."""

    rest = baobab.client
    tables = (await rest.get(f"/v1/{app_id}/schema", headers=baobab.owner)).json()["schema"]["tables"]
    counts = {}
    for name in tables:
        counts[f"rows of {name}"] = len((await rest.get(f"/v1/{app_id}/data/{name}", headers=baobab.owner)).json())
    for name, path in (
        ("keys", f"/v1/{app_id}/kv/_scan"),
        ("objects", f"/storage/{app_id}/objects"),
        ("users", f"/v1/{app_id}/admin/auth/users"),
    ):
        listing = (await rest.get(path, headers=baobab.owner)).json()
        counts[name] = len(listing if isinstance(listing, list) else listing[name])
    return counts


def list_losses(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    return [name for name, count in before.items() if after.get(name, 0) < count]


async def fill(baobab: Baobab) -> str:
    """An app with rows, keys and a file."""
    app_id = await baobab.create_app()
    key = {"type": "integer", "primaryKey": True}
    tables = {
        "services": {"columns": {"id": key, "name": "text", "price": "text"}},
        "bookings": {"columns": {"id": key, "service": {"type": "integer", "references": "services.id"}}},
        "staff": {"columns": {"id": key, "name": "text"}},
    }
    for name, arguments in (
        ("schema_apply", {"schema": {"tables": tables}}),
        ("data_insert", {"table": "services", "values": [{"id": 1, "price": "5"}, {"id": 2, "price": "6"}]}),
        ("data_insert", {"table": "bookings", "values": [{"id": 1, "service": 1}]}),
        ("data_insert", {"table": "staff", "values": [{"id": 1}]}),
        ("kv_put", {"key": "a", "value": 1}),
        ("files_put", {"filename": "a.txt", "contentType": "text/plain", "content": "text"}),
    ):
        result = await call_tool(baobab, name, {"app_id": app_id, **arguments}, path=_WHOLE)
        assert not result.get("isError"), result
    return app_id


def build_arguments(tool: Tool, app_id: str) -> dict[str, Any]:
    """The least arguments that a model would send who knows only the tool's schema."""
    schema = tool.input_schema
    samples: dict[str, Any] = {"string": "a", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    arguments: dict[str, Any] = {}
    for name in schema.get("required", ()):
        about = schema["properties"][name]
        example = tool.examples.get(name, (about.get("examples") or about.get("enum") or [None])[0])
        arguments[name] = samples.get(about.get("type", "string")) if example is None else example
    return {**arguments, **({"app_id": app_id} if "app_id" in schema["properties"] else {})}


async def test_no_call_that_a_remedy_names_loses_anything(baobab: Baobab) -> None:
    app_id = await fill(baobab)
    tools = baobab.application.registry.tools
    before = await count_all(baobab, app_id)
    named_tools = {tool.name: tool for _, text in list_remedies() for tool in find_named_tools(text, tools)}
    assert len(named_tools) > 60
    for name, tool in sorted(named_tools.items()):
        if not tool.mcp or tool.effect in ("external", "destructive"):
            continue
        await call_tool(baobab, name, build_arguments(tool, app_id), path=_WHOLE)
        # A paused app keeps its rows and files, and answers nobody.
        await call_tool(baobab, "config_pause", {"app_id": app_id, "paused": False}, path=_WHOLE)
        assert list_losses(before, await count_all(baobab, app_id)) == [], name


_STORIES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "a left-out table": (
        "schema_apply",
        {"mode": "exact", "schema": {"tables": {"services": {"columns": {"name": "text", "phone": "text"}}}}},
        "mode: merge",
        {"mode": "merge"},
    ),
    "a changed type": (
        "schema_apply",
        {"schema": {"tables": {"services": {"columns": {"price": "numeric"}}}}},
        "add a column of the new type under another name",
        {"schema": {"tables": {"services": {"columns": {"price_new": "numeric"}}}}},
    ),
    "a table that is null": (
        "schema_apply",
        {"schema": {"tables": {"services": None}}},
        "Leave it out to keep it",
        {"schema": {"tables": {}}},
    ),
    "a column that is null": (
        "schema_apply",
        {"schema": {"tables": {"services": {"columns": {"price": None}}}}},
        "Leave it out to keep it",
        {"schema": {"tables": {"services": {}}}},
    ),
    "keys to flush": ("kv_flush", {"confirm": False}, "Ask the person whose keys they are", {}),
    "rows without a filter": ("data_delete_many", {"table": "staff", "where": {}}, "`id` with `eq.`", {}),
    "a row that others refer to": ("data_delete", {"table": "services", "row_id": "1"}, "Leave the row", {}),
}


@pytest.mark.parametrize("story", _STORIES)
async def test_a_refusal_that_is_obeyed_literally_loses_nothing(baobab: Baobab, story: str) -> None:
    app_id = await fill(baobab)
    before = await count_all(baobab, app_id)
    tool, arguments, words, changes = _STORIES[story]
    arguments = {"app_id": app_id, **arguments}
    refusal = read_refusal(await call_tool(baobab, tool, arguments, path=_WHOLE))
    assert words in refusal["remediation"]
    if changes:
        result = await call_tool(baobab, tool, {**arguments, **changes}, path=_WHOLE)
        assert not result.get("isError"), result
    assert list_losses(before, await count_all(baobab, app_id)) == []
