"""Completion of app ids, for the prompt and for the template of resources."""

from typing import Any

import pytest

from tests.conftest import Baobab
from tests.mcp_server.many_apps import create_many_apps
from tests.mcp_server.mcp_requests import ERAS, send_message
from tests.people import create_key, create_person

pytestmark = pytest.mark.own_installation

USER = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
PROMPT = {"type": "ref/prompt", "name": "quickstart"}
TEMPLATE = {"type": "ref/resource", "uri": "baobab://apps/{app_id}"}

each_era = pytest.mark.parametrize("era", ERAS)
each_place = pytest.mark.parametrize("ref", [PROMPT, TEMPLATE])


async def fetch_completion(
    baobab: Baobab, value: str, ref: dict[str, str] = PROMPT, argument: str = "app_id", **how: Any
) -> dict[str, Any]:
    params = {"ref": ref, "argument": {"name": argument, "value": value}}
    completion: dict[str, Any] = (await send_message(baobab, "completion/complete", params, **how)).result["completion"]
    return completion


async def create_named_app(baobab: Baobab, name: str) -> str:
    response = await baobab.client.post("/init", json={"name": name}, headers=baobab.owner)
    app_id: str = response.json()["app_id"]
    return app_id


@each_era
@each_place
async def test_ids_are_completed(baobab: Baobab, era: str, ref: dict[str, str]) -> None:
    shop, blog = await create_named_app(baobab, "shop"), await create_named_app(baobab, "blog")
    assert await fetch_completion(baobab, "", ref, era=era) == {"values": [blog, shop], "total": 2, "hasMore": False}
    assert (await fetch_completion(baobab, shop[:10].upper(), ref, era=era))["values"] == [shop]
    assert (await fetch_completion(baobab, "no", ref, era=era))["values"] == []


@each_era
@each_place
async def test_names_complete_to_ids(baobab: Baobab, era: str, ref: dict[str, str]) -> None:
    shop = await create_named_app(baobab, "shop")
    await create_named_app(baobab, "blog")
    assert (await fetch_completion(baobab, "sH", ref, era=era))["values"] == [shop]
    assert (await fetch_completion(baobab, "sH", ref, "name", era=era))["values"] == [shop]


@each_era
async def test_at_most_a_hundred_are_answered_with_their_number(baobab: Baobab, era: str) -> None:
    await create_many_apps(baobab, 130)
    completion = await fetch_completion(baobab, "one-of", era=era)
    assert len(set(completion["values"])) == 100
    assert (completion["total"], completion["hasMore"]) == (130, True)


@each_era
async def test_nobody_is_told_of_strangers_apps(baobab: Baobab, era: str) -> None:
    own, other = await baobab.create_app(), await baobab.create_app()
    stranger = (await create_person(baobab, "stranger")).headers
    assert (await fetch_completion(baobab, "", by=stranger, era=era))["values"] == []
    app_key = await create_key(baobab, key_scope="app", target_app_id=own)
    assert (await fetch_completion(baobab, "app_", by=app_key, era=era))["values"] == [own]
    assert (await fetch_completion(baobab, other, by=app_key, era=era))["values"] == []
    assert (await fetch_completion(baobab, "", by=await baobab.user_headers(own, USER), era=era))["values"] == []


async def test_a_connection_for_one_app_completes_that_app_only(baobab: Baobab) -> None:
    own, _ = await baobab.create_app(), await baobab.create_app()
    assert (await fetch_completion(baobab, "", path=f"/mcp?app_id={own}"))["values"] == [own]


@pytest.mark.parametrize(
    ("ref", "argument"),
    [
        (PROMPT, "colour"),
        ({"type": "ref/prompt", "name": "slowstart"}, "app_id"),
        ({"type": "ref/resource", "uri": "baobab://llms.txt"}, "app_id"),
    ],
)
async def test_what_has_no_completion_completes_to_nothing(baobab: Baobab, ref: dict[str, str], argument: str) -> None:
    await baobab.create_app()
    assert (await fetch_completion(baobab, "", ref, argument))["values"] == []
