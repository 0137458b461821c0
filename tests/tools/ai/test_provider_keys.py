"""Keys for providers that organisations bring: what can be called with them, in which order, and who sees them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import insert

from baobab.runtime.gateway.gateway import Gateway
from baobab.storage import secrets
from baobab.storage.rotation import reseal
from baobab.tools.ai import organisation_providers
from baobab.tools.ai.tables import provider_keys
from tests.backends import read_database
from tests.people import Person, create_person
from tests.tools.ai.conftest import LAB_KEY, MINI, VENDOR_KEY, Installation, open_installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN_KEY = "sk-proj-organisations-own-0000wxyz"
XAI_KEY = "xai-organisations-own-0000abcd"
GROK = "x-ai/grok-4.6"
# The installation has keys of OpenAI and of Groq, and knows where the others are.
PLACES = {
    "GROQ_API_KEY": "gsk_installations-own-0000",
    "GROQ_BASE_URL": "{url}/v1",
    "TOGETHER_BASE_URL": "{url}/v1",
    "XAI_BASE_URL": "{url}/v1",
    "OPENROUTER_BASE_URL": "{url}/v1",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("keys") / "data"
    async with open_installation(folder, {"BAOBAB_PLAN": "enterprise"}, **PLACES) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def owner(world: Installation) -> Person:
    """Somebody with an organisation that nobody else is in."""
    return await create_person(world, "owner")


async def put_key(world: Installation, by: Person, provider: str, key: str) -> dict[str, Any]:
    answer = await world.client.put(f"/v1/ai/provider-keys/{provider}", json={"key": key}, headers=by.headers)
    assert answer.status_code == 200, answer.text
    answer_json: dict[str, Any] = answer.json()
    return answer_json


async def create_app(world: Installation, by: Person, **settings: Any) -> str:
    app_id: str = (await world.client.post("/init", json={"name": "shop"}, headers=by.headers)).json()["app_id"]
    if settings:
        response = await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=by.headers)
        assert response.status_code == 200, response.text
    return app_id


async def list_models(world: Installation, by: Person, path: str = "/v1/models") -> set[str]:
    answer = (await world.client.get(path, headers=by.headers)).json()
    return {model["id"] for model in answer.get("data") or answer["models"]}


async def list_usage(world: Installation, by: Person) -> list[tuple[str | None, bool, int]]:
    today = world.application.services.clock.now().date()
    return [(each.model, each.byok, each.cost) for each in await world.credits.usage(by.organisation_id, today, today)]


def get_last_key(world: Installation) -> str:
    return str(world.fake.requests[-1].headers["authorization"]).removeprefix("Bearer ")


async def test_the_organisations_key_is_used_and_nothing_is_charged(world: Installation, owner: Person) -> None:
    assert (await put_key(world, owner, "openai", OWN_KEY))["key"] == "***wxyz"
    app_id = await create_app(world, owner)
    for path in ("/v1", f"/v1/{app_id}"):
        answer = await world.chat(MINI, by=owner.headers, path=path)
        assert answer.headers["x-baobab-cost-usd"] == "0.000000000"
        assert get_last_key(world) == OWN_KEY
    body = {"model": "openai/text-embedding-3-small", "input": "a"}
    assert (await world.client.post("/v1/embeddings", json=body, headers=owner.headers)).status_code == 200
    assert get_last_key(world) == OWN_KEY
    rows = await list_usage(world, owner)
    assert all(byok for _, byok, _ in rows)
    # What it would have cost is counted.
    assert sum(cost for model, _, cost in rows if model == MINI) == 2 * 5850
    await world.chat(MINI)
    assert get_last_key(world) == VENDOR_KEY


async def test_an_apps_own_key_comes_first(world: Installation, owner: Person) -> None:
    await put_key(world, owner, "openai", OWN_KEY)
    app_id = await create_app(world, owner, byokKey="sk-proj-of-the-app-itself")
    await world.chat(MINI, by=owner.headers, path=f"/v1/{app_id}")
    assert get_last_key(world) == "sk-proj-of-the-app-itself"
    await world.chat(MINI, by=owner.headers)
    assert get_last_key(world) == OWN_KEY


async def test_models_of_a_provider_that_the_installation_lacks_are_there_for_whoever_has_a_key(
    world: Installation, owner: Person
) -> None:
    assert (await world.chat(GROK, by=owner.headers)).status_code == 404
    await put_key(world, owner, "xai", XAI_KEY)
    app_id, stranger = await create_app(world, owner), await create_person(world, "stranger")
    for path in ("/v1", f"/v1/{app_id}"):
        answer = await world.chat(GROK, by=owner.headers, path=path)
        assert answer.status_code == 200, answer.text
        assert (get_last_key(world), world.fake.requests[-1].json["model"]) == (XAI_KEY, "grok-4.6")
    assert GROK in await list_models(world, owner)
    assert GROK in await list_models(world, owner, f"/v1/{app_id}/ai/models")
    assert GROK not in await list_models(world, stranger)
    assert GROK not in (await world.client.get("/v1/public/models")).text
    assert (await world.chat(GROK, by=stranger.headers)).status_code == 404


async def test_an_apps_key_opens_such_a_provider_to_that_app_alone(world: Installation, owner: Person) -> None:
    app_id, other = await create_app(world, owner, byokKey=XAI_KEY), await create_person(world, "other")
    second = await create_app(world, other)
    assert (await world.chat(GROK, by=owner.headers, path=f"/v1/{app_id}")).status_code == 200
    assert get_last_key(world) == XAI_KEY
    assert GROK in await list_models(world, owner, f"/v1/{app_id}/ai/models")
    assert (await world.chat(GROK, by=owner.headers)).status_code == 404
    assert (await world.chat(GROK, by=other.headers, path=f"/v1/{second}")).status_code == 404


async def test_a_model_of_many_hosts_is_called_at_the_host_that_the_key_is_for(
    world: Installation, owner: Person
) -> None:
    catalogue = world.application.services.part(Gateway).catalogue
    model = next(
        model.id
        for model in catalogue.list_models("chat", ["together_ai"])
        if [each.provider for each in catalogue.list_deployments(model.id, ["together_ai"])] == ["groq", "together_ai"]
    )
    await world.chat(model, by=owner.headers)
    assert get_last_key(world) == PLACES["GROQ_API_KEY"]
    await put_key(world, owner, "together_ai", "tgp_organisations-own-0000")
    await world.chat(model, by=owner.headers)
    assert get_last_key(world) == "tgp_organisations-own-0000"


async def test_a_reseller_that_lists_its_models_itself_is_asked_for_any(world: Installation, owner: Person) -> None:
    await put_key(world, owner, "openrouter", "sk-or-organisations-own-0000")
    answer = await world.chat("openrouter/somebody/some-model", by=owner.headers)
    assert answer.headers["x-baobab-cost-usd"] == "0.000000000"
    assert world.fake.requests[-1].json["model"] == "somebody/some-model"
    assert get_last_key(world) == "sk-or-organisations-own-0000"
    stranger = await create_person(world, "stranger")
    assert (await world.chat("openrouter/somebody/some-model", by=stranger.headers)).status_code == 404


async def test_pictures_and_films_are_the_installations(world: Installation, owner: Person) -> None:
    app_id = await create_app(world, owner)
    path = f"/v1/{app_id}/ai/models"

    async def of_google() -> set[str]:
        models = (await world.client.get(path, headers=owner.headers)).json()["models"]
        return {model["modality"] for model in models if model["id"].startswith("google/gemini")}

    assert await of_google() == set()
    await put_key(world, owner, "gemini", "AIza-organisations-own-0000")
    assert await of_google() == {"chat", "embedding"}
    refusal = await world.client.put(
        "/v1/ai/provider-keys/runwayml", json={"key": "key_of-a-maker-of-films"}, headers=owner.headers
    )
    assert refusal.status_code == 400


async def test_a_key_is_taken_back(world: Installation, owner: Person) -> None:
    await put_key(world, owner, "openai", OWN_KEY)
    await put_key(world, owner, "openai", "sk-proj-the-next-one-0000")
    await world.chat(MINI, by=owner.headers)
    assert get_last_key(world) == "sk-proj-the-next-one-0000"
    response = await world.client.delete("/v1/ai/provider-keys/openai", headers=owner.headers)
    assert response.json() == {"removed": True, "provider": "openai"}
    await world.chat(MINI, by=owner.headers)
    assert get_last_key(world) == VENDOR_KEY
    assert (await world.client.delete("/v1/ai/provider-keys/openai", headers=owner.headers)).status_code == 404


@pytest.mark.parametrize(
    ("provider", "key"),
    [
        ("nobody-here", OWN_KEY),
        ("baobab", OWN_KEY),
        ("groq", OWN_KEY),
        ("openai", "sk-ant-of-another-vendor"),
        ("openai", "short"),
        ("openai", "sk-proj-two\nlines"),
        ("OPENAI", OWN_KEY),
    ],
)
async def test_a_key_is_kept_for_its_own_provider_only(
    world: Installation, owner: Person, provider: str, key: str
) -> None:
    answer = await world.client.put(f"/v1/ai/provider-keys/{provider}", json={"key": key}, headers=owner.headers)
    assert answer.status_code == 400, answer.text
    assert key not in answer.text
    response = await world.client.get("/v1/ai/provider-keys", headers=owner.headers)
    assert response.json()["provider_keys"] == []
    assert {"openai", "anthropic", "xai"} <= set(response.json()["providers"])


async def test_a_server_of_the_operators_is_called_with_the_operators_key_and_charged(
    world: Installation, owner: Person
) -> None:
    model, url = world.add_model("plain"), "/v1/ai/provider-keys"
    refusal = await world.client.put(f"{url}/lab", json={"key": "looked-at-by-nobody"}, headers=owner.headers)
    assert (refusal.status_code, "`lab` is not a vendor" in refusal.json()["error"]["message"]) == (400, True)
    assert "lab" not in (await world.client.get(url, headers=owner.headers)).json()["providers"]
    # One that was kept when it was still allowed counts for nothing, and can be taken back.
    id_ = f"{owner.organisation_id}:lab"
    sealed_key = world.application.services.vault.seal(
        b"looked-at-by-nobody", organisation_providers.key_context(provider_keys, id_)
    )
    row = {"id": id_, "organisation_id": owner.organisation_id, "provider": "lab", "key": sealed_key, "last4": "body"}
    async with world.application.services.database.writing() as connection:
        await connection.execute(insert(provider_keys), {**row, "updated_at": datetime.now(UTC)})
    assert (await world.chat(model, by=owner.headers)).status_code == 200
    assert get_last_key(world) == LAB_KEY
    assert await list_usage(world, owner) == [(model, False, 5850)]
    assert (await world.client.delete(f"{url}/lab", headers=owner.headers)).status_code == 200


async def test_a_key_that_the_provider_refuses_is_its_owners_to_put_right(world: Installation, owner: Person) -> None:
    await put_key(world, owner, "openrouter", "sk-or-no-longer-valid")
    error = (await world.chat("openrouter/401", by=owner.headers)).json()["error"]
    assert error["code"] == "upstream_denied"
    assert "/v1/ai/provider-keys" in error["message"]


async def test_keys_are_sealed_for_their_rows_and_never_shown(world: Installation, owner: Person) -> None:
    key = "sk-proj-that-is-in-no-other-test"
    answers = [
        await world.client.put("/v1/ai/provider-keys/openai", json={"key": key}, headers=owner.headers),
        await world.client.get("/v1/ai/provider-keys", headers=owner.headers),
        await world.client.get("/v1/audit-logs", headers=owner.headers),
    ]
    assert all(key not in answer.text for answer in answers)
    assert key.encode() not in read_database(world.data)
    # Each opens only with the name of its row, on which rotation depends. Then the installation's own is put back.
    old_keys, fresh_key = secrets.read_keys(world.data / "secret.key"), secrets.new_key()
    for order in ([fresh_key, *old_keys], [*old_keys, fresh_key]):
        assert await reseal(world.application.services.database, secrets.Vault(order)) > 0
    await world.chat(MINI, by=owner.headers)
    assert get_last_key(world) == key
