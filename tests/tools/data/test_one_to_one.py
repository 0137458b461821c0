"""Rows of which each row has one at most are embedded as an object: a reference that is also a key, or unique."""

from typing import Any

import pytest
import pytest_asyncio

from tests.tools.data.conftest import ADA, BEN, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

_USERS: dict[str, Any] = {"columns": {"id": {"type": "uuid", "primaryKey": True}, "email": "text"}}
_PROFILES: dict[str, Any] = {
    "columns": {
        "id": {"type": "uuid", "primaryKey": True, "references": "users.id"},
        "name": "text",
        "visible": "boolean",
    }
}
_BADGES: dict[str, Any] = {
    "columns": {
        "number": {"type": "serial", "primaryKey": True},
        "user_id": {"type": "uuid", "unique": True, "references": "users.id"},
        "backup_of": {"type": "uuid", "references": "users.id"},
        "door": "text",
    },
    "indexes": {"badges_backup": {"columns": ["backup_of"], "unique": True}},
}
_NODES: dict[str, Any] = {
    "columns": {
        "id": {"type": "integer", "primaryKey": True},
        "next_id": {"type": "integer", "unique": True, "references": "nodes.id"},
    }
}


@pytest_asyncio.fixture(loop_scope="module")
async def people(tables: Tables) -> Tables:
    await tables.apply({"users": _USERS, "profiles": _PROFILES, "badges": _BADGES, "nodes": _NODES})
    await tables.insert("users", {"id": ADA, "email": "a"}, {"id": BEN, "email": "b"})
    await tables.insert("profiles", {"id": ADA, "name": "Ada", "visible": True})
    await tables.insert("badges", {"user_id": ADA, "door": "east"}, {"user_id": BEN, "backup_of": ADA, "door": "west"})
    await tables.insert("nodes", {"id": 2}, {"id": 1, "next_id": 2})
    return tables


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (
            "users?select=email,profiles(name)",
            [{"email": "a", "profiles": {"name": "Ada"}}, {"email": "b", "profiles": None}],
        ),
        ("users?select=email,...profiles(name)", [{"email": "a", "name": "Ada"}, {"email": "b", "name": None}]),
        ("profiles?select=name,users(email)", [{"name": "Ada", "users": {"email": "a"}}]),
        ("users?select=email,profiles!inner(name)", [{"email": "a", "profiles": {"name": "Ada"}}]),
        ("users?select=email,profiles()&profiles=is.null", [{"email": "b"}]),
        (
            "users?select=email,profiles(name)&profiles.name=eq.Nobody",
            [{"email": "a", "profiles": None}, {"email": "b", "profiles": None}],
        ),
        ("users?select=email,profiles(name)&profiles.limit=1&limit=1", [{"email": "a", "profiles": {"name": "Ada"}}]),
        (
            "users?select=email,profiles(count)",
            [{"email": "a", "profiles": {"count": 1}}, {"email": "b", "profiles": {"count": 0}}],
        ),
        ("users?select=badges!user_id(door)", [{"badges": {"door": "east"}}, {"badges": {"door": "west"}}]),
        ("users?select=badges!backup_of(door)", [{"badges": {"door": "west"}}, {"badges": None}]),
        ("users?select=email,badges!user_id()&order=badges(door).desc", [{"email": "b"}, {"email": "a"}]),
        (
            "users?select=badges_user_id_fkey(door)",
            [{"badges_user_id_fkey": {"door": "east"}}, {"badges_user_id_fkey": {"door": "west"}}],
        ),
        (
            "badges?select=door,badges_backup_of_fkey(email)",
            [
                {"door": "east", "badges_backup_of_fkey": None},
                {"door": "west", "badges_backup_of_fkey": {"email": "a"}},
            ],
        ),
        (
            "users?select=profiles(name,users(email,badges!user_id(door)))&limit=1",
            [{"profiles": {"name": "Ada", "users": {"email": "a", "badges": {"door": "east"}}}}],
        ),
        (
            "nodes?select=id,next_id(id),before:nodes!next_id(id)&order=id",
            [{"id": 1, "next_id": {"id": 2}, "before": None}, {"id": 2, "next_id": None, "before": {"id": 1}}],
        ),
    ],
)
async def test_the_only_related_row_is_an_object(people: Tables, query: str, rows: list[Any]) -> None:
    assert await people.list(query) == rows


async def test_a_related_row_that_a_policy_hides_is_null(people: Tables) -> None:
    await people.policy("users", "all", using_expression="true")
    await people.policy("profiles", "visible", using_expression="visible")
    query = "users?select=email,profiles(name)"
    assert [row["profiles"] for row in await people.list(query, by={})] == [{"name": "Ada"}, None]
    await people.ask("PATCH", f"/profiles/{ADA}", {"visible": False})
    assert [row["profiles"] for row in await people.list(query, by={})] == [None, None]


async def test_a_write_returns_the_only_related_row_as_an_object(people: Tables) -> None:
    answer = await people.ask("PATCH", f"/users?id=eq.{ADA}&select=email,profiles(name)", {"email": "c"})
    assert answer.json == [{"email": "c", "profiles": {"name": "Ada"}}]
