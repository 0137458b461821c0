"""The lists of models: for callers, for everybody, for an app."""

import anthropic
import openai
import pytest

from tests.tools.ai.conftest import MINI, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_callers_see_what_they_can_call(world: Installation) -> None:
    body = (await world.client.get("/v1/models", headers=world.owner)).json()
    assert body["object"] == "list"
    (mini,) = [model for model in body["data"] if model["id"] == MINI]
    assert mini == {
        "id": MINI,
        "object": "model",
        "created": 0,
        "owned_by": "openai",
        "display_name": "OpenAI: gpt-4o-mini",
        "type": "model",
        "created_at": "1970-01-01T00:00:00Z",
    }
    assert (body["first_id"], body["has_more"]) == (body["data"][0]["id"], False)
    # Of those that nobody here has a key for, none is listed.
    assert {model["id"].partition("/")[0] for model in body["data"]} <= {"openai", "anthropic", "baobab", "lab"}


@pytest.mark.parametrize("in_app", [False, True])
async def test_official_clients_list_and_read_models(world: Installation, in_app: bool) -> None:
    base = f"{world.address}/v1/{await world.create_app()}" if in_app else f"{world.address}/v1"
    async with world.build_client(base_url=base) as client:
        assert MINI in [model.id async for model in client.models.list()]
        for name in (MINI, "gpt-4o-mini"):
            model = await client.models.retrieve(name)
            assert (model.id, model.owned_by, model.created) == (MINI, "openai", 0)
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("nobody/nothing")
    theirs = base.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=theirs, api_key=world.key) as other:
        assert MINI in [model.id async for model in other.models.list()]
        assert (await other.models.retrieve(MINI)).display_name == "OpenAI: gpt-4o-mini"


async def test_models_come_in_pages_for_those_who_ask_for_them(world: Installation) -> None:
    ids = [model["id"] for model in (await world.client.get("/v1/models", headers=world.owner)).json()["data"]]
    async with anthropic.AsyncAnthropic(base_url=world.address, api_key=world.key) as client:
        assert [model.id async for model in client.models.list(limit=7)] == ids
        page = await client.models.list(limit=2, before_id=ids[5])
        assert ([model.id for model in page.data], page.has_more) == (ids[3:5], True)
        assert [model.id for model in (await client.beta.models.list(limit=1000)).data] == ids
    async with world.build_client() as other:
        query = {"after": ids[0], "limit": "2"}
        assert [model.id for model in (await other.models.list(extra_query=query)).data] == ids[1:3]
    for wrong in ("limit=0", "limit=1001", "after_id=nobody/nothing", f"after_id={ids[0]}&before_id={ids[1]}"):
        refusal = await world.client.get(f"/v1/models?{wrong}", headers=world.owner)
        assert (refusal.status_code, refusal.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_an_app_lists_what_it_allows(world: Installation) -> None:
    app_id = await world.create_app()
    body = {"allowedModels": [MINI, "baobab/echo"]}
    assert (await world.client.put(f"/v1/{app_id}/ai/config", json=body, headers=world.owner)).status_code == 200
    user = await world.user_headers(app_id, "somebody")
    listed_body = (await world.client.get(f"/v1/{app_id}/models", headers=user)).json()
    assert [model["id"] for model in listed_body["data"]] == ["baobab/echo", MINI]
    refusal = await world.client.get(f"/v1/{app_id}/models/claude-haiku-4-5", headers=user)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "MODEL_NOT_ALLOWED")


async def test_everybody_sees_the_prices(world: Installation) -> None:
    models = (await world.client.get("/v1/public/models")).json()["models"]
    (mini,) = [model for model in models if model["id"] == MINI]
    assert mini == {
        "id": MINI,
        "name": "OpenAI: gpt-4o-mini",
        "inputPricePerMTokens": 0.15,
        "outputPricePerMTokens": 0.6,
        "contextWindow": 128_000,
    }
    assert (await world.client.get("/v1/models")).status_code == 401


async def test_an_app_sees_its_models_with_whole_nanodollars(world: Installation) -> None:
    app_id = await world.create_app()
    user = await world.user_headers(app_id, "somebody")
    models = (await world.client.get(f"/v1/{app_id}/ai/models", headers=user)).json()["models"]
    (mini,) = [model for model in models if model["id"] == MINI]
    assert mini["raw_pricing"] == {
        "prompt_nanos_per_mtok": 150_000_000,
        "completion_nanos_per_mtok": 600_000_000,
        "cached_nanos_per_mtok": 75_000_000,
        "cache_write_nanos_per_mtok": None,
        "cache_write_hour_nanos_per_mtok": None,
        "nanos_per_unit": None,
    }
    assert (mini["modality"], mini["context_length"]) == ("chat", 128_000)
    assert (mini["prompt_price_per_mtok"], mini["completion_price_per_mtok"]) == (0.15, 0.6)
    assert {"chat", "embedding"} <= {model["modality"] for model in models}
