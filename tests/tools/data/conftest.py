"""An installation for each module, and an app with tables for each test."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.http.installation import Answer, App, Headers, Installation, open_installation

ADA = "11111111-1111-4111-8111-111111111111"
BEN = "22222222-2222-4222-8222-222222222222"
POSTS: dict[str, Any] = {
    "columns": {
        "id": {"type": "uuid", "primaryKey": True, "default": "gen_random_uuid()"},
        "user_id": {"type": "uuid"},
        "title": {"type": "text", "nullable": False},
        "public": {"type": "boolean", "default": "false"},
        "score": {"type": "integer"},
        "created_at": {"type": "timestamptz", "default": "now()"},
    },
    "indexes": {"posts_user": {"columns": ["user_id"]}},
}


@dataclass
class Tables:
    """The tables of one app, asked over REST."""

    world: Installation
    app: App

    @property
    def base(self) -> str:
        return f"/v1/{self.app.id}"

    async def ask(self, method: str, path: str, body: Any = None, by: Headers | None = None, **headers: str) -> Answer:
        """by: the caller; the app's owner if none is named, nobody for an empty mapping."""
        caller = self.world.owner if by is None else by
        more_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.world.ask(method, f"{self.base}{path}", {**caller, **more_headers}, body)

    async def apply(self, tables: dict[str, Any], **options: Any) -> Any:
        drop = options.pop("drop", [])
        answer = await self.ask("POST", "/schema/apply", {"schema": {"tables": tables, "_drop": drop}, **options})
        assert answer.status == 200, answer.content
        return answer.json

    async def insert(self, table: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        answer = await self.ask("POST", f"/{table}", list(rows))
        assert answer.status == 201, answer.content
        inserted_rows: list[dict[str, Any]] = answer.json
        return inserted_rows

    async def list(self, query: str, by: Headers | None = None, **headers: str) -> Any:
        answer = await self.ask("GET", f"/{query}", None, by, **headers)
        assert answer.status == 200, answer.content
        return answer.json

    async def policy(self, table: str, name: str, **fields: Any) -> Any:
        answer = await self.ask("POST", "/rls/policies", {"table_name": table, "policy_name": name, **fields})
        assert answer.status == 200, answer.content
        return answer.json

    async def user(self, user_id: str, **claims: Any) -> Headers:
        return await self.world.user_headers(self.app, user_id, **claims)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    async with open_installation(tmp_path_factory.mktemp("data"), plan="enterprise") as installation:
        yield installation


@pytest_asyncio.fixture(loop_scope="module")
async def tables(world: Installation) -> Tables:
    return Tables(world, await world.create_app())
