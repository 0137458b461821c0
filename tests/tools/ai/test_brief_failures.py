"""A provider that fails for a moment does not end an agent's run, and its owner reads what it said."""

import pytest

from tests.tools.ai.conftest import Installation
from tests.tools.ai.test_provider_habits import run_calling_agent

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_run_outlives_a_provider_that_fails_for_a_moment(world: Installation) -> None:
    # A call to a model is tried three times at once; then the run waits, as its node says or by default.
    model = world.add_model("flaky:4", id="lab/recovers")
    count = len(world.fake.requests)
    await run_calling_agent(world, model)
    assert len(world.fake.requests) == count + 5


@pytest.mark.parametrize("is_own", [True, False])
async def test_what_a_failing_provider_said_is_for_the_owner_of_the_key(world: Installation, *, is_own: bool) -> None:
    model = world.add_model("500", server="openai")
    key = {"key": "sk-proj-of-our-own-account"}
    if is_own:
        answer = await world.client.put("/v1/ai/provider-keys/openai", json=key, headers=world.owner)
        assert answer.status_code in (200, 201), answer.text
    error = (await world.chat(model)).json()["error"]
    assert (error["code"], "The upstream says 500" in error["message"]) == ("upstream_error", is_own)
    app_id = await world.create_app()
    user = await world.user_headers(app_id, "somebody")
    error = (await world.chat(model, by=user, path=f"/v1/{app_id}")).json()["error"]
    assert "The upstream says" not in error["message"]
    await world.client.delete("/v1/ai/provider-keys/openai", headers=world.owner)
