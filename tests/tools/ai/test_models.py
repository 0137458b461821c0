"""The lists of models: for callers, for everybody, for an app."""

import pytest

from tests.tools.ai.conftest import MINI, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_callers_see_what_they_can_call(world: Installation) -> None:
    listed = (await world.client.get("/v1/models", headers=world.owner)).json()
    assert listed["object"] == "list"
    (mini,) = [model for model in listed["data"] if model["id"] == MINI]
    assert mini == {"id": MINI, "object": "model", "display_name": "OpenAI: gpt-4o-mini"}
    # Of those that nobody here has a key for, none is listed.
    assert {model["id"].partition("/")[0] for model in listed["data"]} <= {"openai", "anthropic", "baobab", "lab"}


async def test_everybody_sees_the_prices(world: Installation) -> None:
    listed = (await world.client.get("/v1/public/models")).json()["models"]
    (mini,) = [model for model in listed if model["id"] == MINI]
    assert mini == {
        "id": MINI,
        "name": "OpenAI: gpt-4o-mini",
        "inputPricePerMTokens": 0.15,
        "outputPricePerMTokens": 0.6,
        "contextWindow": 128_000,
    }
    assert (await world.client.get("/v1/models")).status_code == 401


async def test_an_app_sees_its_models_with_whole_nanodollars(world: Installation) -> None:
    app_id = await world.app()
    user = await world.user(app_id, "somebody")
    listed = (await world.client.get(f"/v1/{app_id}/ai/models", headers=user)).json()["models"]
    (mini,) = [model for model in listed if model["id"] == MINI]
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
    assert {"chat", "embedding"} <= {model["modality"] for model in listed}
