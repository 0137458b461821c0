"""What the tools of apps refuse: names, bodies, queries and ids that do not fit."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import Baobab
from tests.installation import open_installation

STRANGE_NAMES = ["", "Shop", "-shop", "_shop", "my shop", "shop!", "x" * 64, "shop\u0000", "über", "shop\n"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def baobab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """One installation for all tests of this module: each has an app of its own, and that is what it looks at."""
    async with open_installation(tmp_path_factory.mktemp("data")) as installation:
        yield installation


async def init_app(baobab: Baobab, **body: Any) -> Any:
    return await baobab.client.post("/init", json=body, headers=baobab.owner)


@pytest.mark.parametrize("name", STRANGE_NAMES)
async def test_init_refuses_a_name_that_no_app_may_have(baobab: Baobab, name: str) -> None:
    refusal = await init_app(baobab, name=name)
    assert refusal.status_code == 400
    assert "`name`" in refusal.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "VALIDATION_MISSING_FIELD"),
        ({"name": 7}, "VALIDATION_INVALID_TYPE"),
        ({"name": None}, "VALIDATION_INVALID_TYPE"),
        ({"name": "shop", "colour": "red"}, "VALIDATION_INVALID_SCHEMA"),
        ({"name": "shop", "subdomain": "a_b"}, "VALIDATION_INVALID_INPUT"),
        ({"name": "shop", "subdomain": "-ab"}, "VALIDATION_INVALID_INPUT"),
        ({"name": "shop", "subdomain": "ab"}, "VALIDATION_INVALID_INPUT"),
        ({"name": "shop", "organization_id": "mine"}, "VALIDATION_INVALID_INPUT"),
    ],
)
async def test_init_says_what_is_wrong_with_its_body(baobab: Baobab, body: Any, code: Any) -> None:
    refusal = await init_app(baobab, **body)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, code)


@pytest.mark.parametrize(
    "query", [{"cursor": "bm9uZQ"}, {"cursor": "%"}, {"limit": "0"}, {"limit": "501"}, {"limit": "many"}, {"page": "2"}]
)
async def test_the_list_refuses_a_query_that_it_does_not_understand(baobab: Baobab, query: Any) -> None:
    assert (await baobab.client.get("/apps", params=query, headers=baobab.owner)).status_code == 400


@pytest.mark.parametrize("app", ["app_000000000000", "nonsense", "APP_1", "app_%00", "..%2F..", "a" * 400])
async def test_an_app_that_is_not_there_is_404(baobab: Baobab, app: Any) -> None:
    refusal = await baobab.client.get(f"/apps/{app}/status", headers=baobab.owner)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (404, "APP_NOT_FOUND")


@pytest.mark.parametrize("name", STRANGE_NAMES)
async def test_an_app_cannot_be_renamed_to_a_name_that_no_app_may_have(baobab: Baobab, name: str) -> None:
    app = await baobab.create_app()
    assert (await baobab.client.patch(f"/apps/{app}", json={"name": name}, headers=baobab.owner)).status_code == 400
