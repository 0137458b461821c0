"""Apps: made, found again, listed, renamed."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.conftest import Baobab
from tests.people import create_key, create_person, get_first_organisation
from tests.statement_count import count_statements

pytestmark = pytest.mark.own_installation


async def init_app(baobab: Baobab, headers: Any = None, **body: Any) -> Any:
    return await baobab.client.post("/init", json=body, headers=headers or baobab.owner)


async def test_init_answers_201_with_everything_that_a_new_app_needs(baobab: Baobab) -> None:
    response = await init_app(baobab, name="shop")
    app = response.json()
    assert response.status_code == 201
    assert app["name"] == "shop"
    assert app["subdomain"] == "shop"
    assert app["region"] == "local"
    assert app["url"] == "http://shop.localhost:8000"
    assert app["api_base_url"] == app["api_url"] == f"http://127.0.0.1:8000/v1/{app['app_id']}"
    assert app["anon_key"].startswith("bb_anon_")
    assert app["provisioning_status"] == "ready"
    assert app["_meta"]["resource_info"] == {"apps": 1}


async def test_every_next_action_of_a_new_app_names_a_tool_that_exists(baobab: Baobab) -> None:
    actions = (await init_app(baobab, name="shop")).json()["_meta"]["next_actions"]
    assert {action["tool"] for action in actions} <= baobab.application.registry.tools.keys()


async def test_a_new_app_asks_a_server_twice_before_its_commit_and_a_list_once(baobab: Baobab) -> None:
    if baobab.application.services.database.dialect != "postgresql":
        return
    asked_by_init, asked_by_list = [], []
    # The first call on each connection asks more.
    for number in range(8):
        with count_statements() as count:
            await init_app(baobab, name=f"shop-{number}")
        asked_by_init.append([trip for trip in count.round_trips if any(" apps" in text for text in trip)])
        with count_statements() as count:
            await baobab.client.get("/apps", headers=baobab.owner)
        asked_by_list.append([trip for trip in count.round_trips if any(" apps" in text for text in trip)])
    assert [len(trip) for trip in min(asked_by_init, key=len)] == [3, 1]
    assert [len(trip) for trip in min(asked_by_list, key=len)] == [1]


async def test_init_with_the_same_name_answers_200_with_the_same_app(baobab: Baobab) -> None:
    first = await init_app(baobab, name="shop")
    second = await init_app(baobab, name="shop", subdomain="another")
    assert second.status_code == 200
    fields = ("app_id", "name", "subdomain", "region", "created_at", "anon_key")
    assert {f: second.json()[f] for f in fields} == {f: first.json()[f] for f in fields}


async def test_twenty_calls_of_init_at_once_make_one_app(baobab: Baobab) -> None:
    answers = await asyncio.gather(*(init_app(baobab, name="shop") for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert len({answer.json()["app_id"] for answer in answers}) == 1
    response = await baobab.client.get("/apps", headers=baobab.owner)
    assert len(response.json()["apps"]) == 1


async def test_twenty_apps_whose_names_collide_in_the_subdomain_all_get_one_of_their_own(baobab: Baobab) -> None:
    names = [f"my{word}shop{mark * many}" for word, mark in (("-", "-"), ("_", "_")) for many in range(10)]
    answers = await asyncio.gather(*(init_app(baobab, name=name) for name in names))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["subdomain"] for answer in answers}) == len(names)


@pytest.mark.parametrize(
    ("name", "subdomain"), [("my_shop", "my-shop"), ("a", "a"), ("a__", "a"), ("0-0", "0-0"), ("x" * 63, "x" * 63)]
)
async def test_the_subdomain_is_derived_from_the_name(baobab: Baobab, name: str, subdomain: Any) -> None:
    assert (await init_app(baobab, name=name)).json()["subdomain"] == subdomain


async def test_an_explicit_subdomain_is_taken_as_it_is(baobab: Baobab) -> None:
    assert (await init_app(baobab, name="shop", subdomain="boutique")).json()["subdomain"] == "boutique"


@pytest.mark.parametrize("subdomain", ["taken", "www", "api", "admin"])
async def test_init_refuses_a_subdomain_that_is_taken_or_reserved(baobab: Baobab, subdomain: Any) -> None:
    await init_app(baobab, name="first", subdomain="taken")
    refusal = await init_app(baobab, name="second", subdomain=subdomain)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (409, "RESOURCE_ALREADY_EXISTS")
    assert len((await baobab.client.get("/apps", headers=baobab.owner)).json()["apps"]) == 1


@pytest.mark.parametrize("name", ["shop", "admin"])
async def test_a_derived_subdomain_that_is_taken_or_reserved_gets_a_word(baobab: Baobab, name: str) -> None:
    await init_app(baobab, name="first", subdomain="shop")
    subdomain = (await init_app(baobab, name=name)).json()["subdomain"]
    assert subdomain.startswith(f"{name}-")
    assert subdomain.removeprefix(f"{name}-").isalpha()


async def test_an_app_answers_under_its_own_subdomain(baobab: Baobab) -> None:
    app = (await init_app(baobab, name="shop")).json()
    await baobab.client.put(f"/v1/{app['app_id']}/kv/a", json={"value": 1}, headers=baobab.owner)
    answer = await baobab.client.get("/kv/a", headers={**baobab.owner, "host": "shop.localhost:8000"})
    assert answer.json() == {"value": 1}


async def test_init_names_the_regions_when_it_is_asked_for_one_that_is_not_there(baobab: Baobab) -> None:
    refusal = await init_app(baobab, name="shop", region="mars-1")
    error = refusal.json()["error"]
    assert refusal.status_code == 400
    assert "mars-1" in error["message"]
    assert error["details"] == {"regions": ["local"]}


async def test_init_takes_a_region_by_name(baobab: Baobab) -> None:
    assert (await init_app(baobab, name="shop", region="local")).json()["region"] == "local"


async def test_init_makes_the_app_in_the_organisation_that_is_named(baobab: Baobab) -> None:
    home = await get_first_organisation(baobab)
    member = await create_person(baobab, "ada", role="member")
    app = await init_app(baobab, member.headers, name="a", organization_id=home)
    own = await init_app(baobab, member.headers, name="a")
    by_header = await init_app(baobab, {**member.headers, "x-organization-id": home}, name="b")
    assert [a.json()["organization_id"] for a in (app, own, by_header)] == [home, member.organisation_id, home]
    assert app.json()["app_id"] != own.json()["app_id"]


async def test_init_refuses_an_organisation_that_the_caller_is_not_in(baobab: Baobab) -> None:
    home, stranger = await get_first_organisation(baobab), await create_person(baobab, "eve")
    for headers, body in (
        (stranger.headers, {"organization_id": home}),
        ({**stranger.headers, "x-organization-id": home}, {}),
        (await create_key(baobab, stranger.headers), {"organization_id": home}),
        (baobab.owner, {"organization_id": stranger.organisation_id}),
    ):
        assert (await init_app(baobab, headers, name="shop", **body)).status_code == 403


async def test_two_organisations_may_have_apps_of_one_name(baobab: Baobab) -> None:
    other = await create_person(baobab, "ada")
    first, second = await init_app(baobab, name="shop"), await init_app(baobab, other.headers, name="shop")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["app_id"] != second.json()["app_id"]


async def test_the_list_shows_each_app_once_over_its_pages_newest_first(baobab: Baobab) -> None:
    apps = [await baobab.create_app() for _ in range(5)]
    listed_apps, cursor = [], None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await baobab.client.get("/apps", params=query, headers=baobab.owner)).json()
        assert 1 <= len(page["apps"]) <= 2
        listed_apps += page["apps"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert {app["id"] for app in listed_apps} == set(apps)
    assert len(listed_apps) == 5
    assert all(newer["created_at"] >= older["created_at"] for newer, older in pairwise(listed_apps))


async def test_a_row_of_the_list_has_the_fields_of_the_contract(baobab: Baobab) -> None:
    await baobab.create_app()
    row = (await baobab.client.get("/apps", headers=baobab.owner)).json()["apps"][0]
    field_names = "id name display_name subdomain db_name db_provisioned provisioning_status region visibility listed "
    field_names += "template_source_app_id fork_count substrate_organization_id organization_id created_at"
    assert set(row) == set(field_names.split())


async def test_every_member_of_the_organisation_sees_its_apps_and_a_stranger_does_not(baobab: Baobab) -> None:
    app, home = await baobab.create_app(), await get_first_organisation(baobab)
    member, stranger = await create_person(baobab, "ada", role="member"), await create_person(baobab, "eve")
    response = await baobab.client.get("/apps", params={"org_id": home}, headers=member.headers)
    by_header = await baobab.client.get("/apps", headers={**member.headers, "x-organization-id": home})
    assert [row["id"] for row in response.json()["apps"]] == [row["id"] for row in by_header.json()["apps"]] == [app]
    assert (await baobab.client.get(f"/v1/{app}/config", headers=member.headers)).status_code == 200
    assert (await baobab.client.get("/apps", headers=stranger.headers)).json()["apps"] == []
    assert (await baobab.client.get("/apps", params={"org_id": home}, headers=stranger.headers)).status_code == 403
    for path in (f"/v1/{app}/config", f"/apps/{app}/status", f"/v1/{app}/audit-logs", f"/v1/{app}/kv/_stats"):
        assert (await baobab.client.get(path, headers=stranger.headers)).status_code == 403, path


async def test_the_status_of_an_app_says_that_it_is_ready(baobab: Baobab) -> None:
    app = await baobab.create_app(name="shop")
    status = await baobab.client.get(f"/apps/{app}/status", headers=baobab.owner)
    assert status.json() == {
        "app_id": app,
        "name": "shop",
        "db_provisioned": True,
        "provisioning_status": "ready",
        "provisioning_error": None,
    }


async def test_a_renamed_app_keeps_its_id_and_subdomain_and_frees_its_name(baobab: Baobab) -> None:
    app = await baobab.create_app(name="shop")
    response = await baobab.client.patch(f"/apps/{app}", json={"name": "store"}, headers=baobab.owner)
    assert response.status_code == 200
    row = response.json()
    assert (row["id"], row["name"], row["subdomain"]) == (app, "store", "shop")
    assert (await baobab.client.get(f"/v1/{app}/config", headers=baobab.owner)).json()["name"] == "store"
    assert (await init_app(baobab, name="shop")).status_code == 201


async def test_an_app_cannot_be_renamed_to_the_name_of_another(baobab: Baobab) -> None:
    first, second = await baobab.create_app(name="first"), await baobab.create_app(name="second")
    refusal = await baobab.client.patch(f"/apps/{second}", json={"name": "first"}, headers=baobab.owner)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (409, "RESOURCE_ALREADY_EXISTS")
    same = await baobab.client.patch(f"/apps/{first}", json={"name": "first"}, headers=baobab.owner)
    assert same.status_code == 200


async def test_a_key_of_another_organisation_of_the_same_account_does_not_open_an_app(baobab: Baobab) -> None:
    ada = await create_person(baobab, "ada")
    app_id = (await init_app(baobab, ada.headers, name="shop")).json()["app_id"]
    branch = await baobab.client.post("/v1/organizations", json={"name": "Branch"}, headers=ada.headers)
    here = await create_key(baobab, ada.headers)
    there = await create_key(baobab, ada.headers, organization_id=branch.json()["id"])
    for headers, status in ((ada.headers, 200), (here, 200), (there, 403)):
        answer = await baobab.client.get(f"/v1/{app_id}/config", headers=headers)
        assert answer.status_code == status, answer.text
    assert (await baobab.client.put(f"/v1/{app_id}/kv/a", json={"value": 1}, headers=there)).status_code == 403
