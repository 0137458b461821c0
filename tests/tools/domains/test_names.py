"""Which names can be custom domains, and that nobody gets one that is somebody else's."""

import asyncio

import pytest

from baobab.tools.domains.states import GRACE
from tests.tools.domains.conftest import DAY, NAME, Owner


@pytest.mark.parametrize(
    "hostname",
    [
        pytest.param("WWW.Shop.Example", id="capitals"),
        pytest.param("www.shop.example.", id="a dot at the end"),
        pytest.param("\uff57\uff57\uff57.shop\u3002example", id="wide letters"),
    ],
)
async def test_every_spelling_of_a_name_is_the_same_name(owner: Owner, hostname: str) -> None:
    await owner.activate()
    other = await owner.create_app()
    assert (await owner.add(hostname, 409, app=other))["error"]["code"] == "RESOURCE_ALREADY_EXISTS"
    await owner.add(hostname, 409)


async def test_names_in_other_alphabets_are_kept_as_the_dns_has_them(owner: Owner) -> None:
    domain = (await owner.add("www.bücher.example"))["domain"]
    assert domain["hostname"] == "www.xn--bcher-kva.example"
    await owner.add("www.XN--BCHER-KVA.example", 409)


@pytest.mark.parametrize(
    "hostname",
    [
        "",
        "shop",
        ".",
        "..example",
        "*.shop.example",
        "https://www.shop.example",
        "www.shop.example/path",
        "www.shop.example:8443",
        "user@shop.example",
        "www shop.example",
        "www_1.shop.example",
        "-a.example",
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "1.2.3.0x4",
        "[::1]",
        "shop.1a",
        "localhost",
        "shop.localhost",
        "printer.local",
        "1.0.0.127.in-addr.arpa",
        "co.uk",
        "com.au",
        "api.example",
        "www.api.example",
        "API.example.",
        "x.shop.api.example",
        f"{'a' * 64}.example",
        f"{'a.' * 120}example",
        "www.shop.example\x00",
    ],
)
async def test_what_is_no_name_of_the_owners_is_refused(owner: Owner, hostname: str) -> None:
    answer = await owner.add(hostname, 400)
    assert answer["error"]["code"].startswith("VALIDATION")
    assert (await owner.request("GET", ""))["domains"] == []


async def test_the_longest_name_has_room_for_its_proof(owner: Owner) -> None:
    labels = ["a" * 60, "b" * 60, "c" * 60, "d" * 43, "example"]
    hostname = ".".join(labels)
    assert len(hostname) + len("_baobab-challenge.") == 252
    await owner.add(hostname)


async def test_two_apps_may_want_a_name_and_the_first_that_proves_it_gets_it(owner: Owner) -> None:
    other = await owner.create_app()
    first, second = await owner.add(), await owner.add(app=other)
    assert first["ownership_verification"]["value"] != second["ownership_verification"]["value"]
    owner.set_records(second["verification_records"])
    assert (await owner.verify(second["domain"]["id"], other))["domain"]["status"] == "active"
    domain = (await owner.verify(first["domain"]["id"]))["domain"]
    assert domain["status"] != "active"


async def test_of_two_apps_that_prove_a_name_at_once_one_gets_it(owner: Owner) -> None:
    other = await owner.create_app()
    await owner.deploy("one")
    await owner.deploy("two", other)
    first = await owner.add("shop.example")
    second = await owner.add("shop.example", app=other)
    owner.set_records(first["verification_records"] + second["verification_records"])
    answers = await asyncio.gather(owner.verify(first["domain"]["id"]), owner.verify(second["domain"]["id"], other))
    statuses = [answer["domain"]["status"] for answer in answers]
    assert sorted(statuses) == ["active", "verifying"]
    loser = answers[statuses.index("verifying")]["domain"]
    assert "another app" in loser["verification_errors"][0]
    text = ("one", "two")[statuses.index("active")]
    assert (await owner.visit(host="shop.example")).text == text


async def test_a_released_name_is_nobodys_until_a_new_proof(owner: Owner) -> None:
    domain_id = await owner.activate()
    await owner.deploy()
    await owner.request("DELETE", f"/{domain_id}")
    assert (await owner.visit()).status_code == 421
    # The records still say what they said, and lead to this server.
    other = await owner.create_app()
    stolen = await owner.add(app=other)
    assert (await owner.verify(stolen["domain"]["id"], other))["domain"]["status"] == "pending"
    own = await owner.add()
    assert (await owner.verify(own["domain"]["id"]))["domain"]["status"] == "verifying"
    owner.set_records(own["verification_records"][:1])
    assert (await owner.verify(own["domain"]["id"]))["domain"]["status"] == "active"


async def test_another_app_gets_a_name_only_when_its_holder_has_lost_it(owner: Owner) -> None:
    await owner.activate()
    other = await owner.create_app()
    await owner.add(NAME, 409, app=other)
    owner.take_proof_away()
    await owner.wait(DAY)
    await owner.add(NAME, 409, app=other)
    await owner.wait(GRACE.total_seconds())
    new = await owner.add(app=other)
    owner.set_records(new["verification_records"][:1])
    assert (await owner.verify(new["domain"]["id"], other))["domain"]["status"] == "verifying"
    for server in owner.servers:
        server.set(NAME, "CNAME", new["cname_target"])
    assert (await owner.verify(new["domain"]["id"], other))["domain"]["status"] == "active"


async def test_with_an_app_its_names_go(owner: Owner) -> None:
    await owner.deploy()
    await owner.activate()
    assert (await owner.visit()).status_code == 200
    answer = await owner.client.delete(f"/apps/{owner.app}", headers=owner.owner)
    assert answer.status_code == 200, answer.text
    assert (await owner.visit()).status_code == 421
    other = await owner.create_app()
    new = await owner.add(app=other)
    # The proof of the app that is gone is still there, and proves nothing.
    assert (await owner.verify(new["domain"]["id"], other))["domain"]["status"] == "pending"


async def test_a_domain_of_another_app_cannot_be_read_checked_or_removed(owner: Owner) -> None:
    domain_id = (await owner.add())["domain"]["id"]
    other = await owner.create_app()
    for method, path in (("GET", "/status"), ("POST", "/verify"), ("DELETE", "")):
        answer = await owner.request(method, f"/{domain_id}{path}", 404, other)
        assert answer["error"]["code"] == "RESOURCE_NOT_FOUND"


class TestPlans:
    @pytest.fixture
    def plan(self) -> str:
        return "playground"

    async def test_a_plan_may_have_no_custom_domains(self, owner: Owner) -> None:
        answer = await owner.add(NAME, 403)
        assert (answer["error"], "upgradeUrl" in answer) == ("feature_not_available", True)


async def test_a_plan_has_room_for_so_many(owner: Owner) -> None:
    limit = (await owner.request("GET", ""))["limit"]
    for number in range(limit):
        await owner.add(f"www.shop-{number}.example")
    answer = await owner.add("www.last.example", 403)
    assert (answer["error"], answer["limit"]) == ("plan_limit_exceeded", limit)
