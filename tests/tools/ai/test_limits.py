"""How often models may be asked outside of an app: as often as the organisation's plan allows."""

from pathlib import Path

import pytest

from tests.people import create_key
from tests.tools.ai.conftest import open_installation


@pytest.mark.parametrize(("plan", "amount"), [("playground", 300), ("enterprise", None)])
async def test_models_have_a_bucket_of_the_plans_size_that_nothing_else_shares(
    tmp_path: Path, settings: dict[str, str], plan: str, amount: int | None
) -> None:
    async with open_installation(tmp_path / "data", {**settings, "BAOBAB_PLAN": plan}) as world:
        # Another key of the organisation takes from the same.
        other = await create_key(world, scopes=["ai:gateway"])
        passed_count = None
        for number in range(610):
            answer = await world.chat("baobab/echo", by=other if number % 2 else None)
            if answer.status_code == 429:
                passed_count = number
                break
            assert answer.status_code == 200, answer.text
        assert passed_count == amount
        if amount is not None:
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            message = {"model": "baobab/echo", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello!"}]}
            for path, body in (("messages", message), ("responses", {"input": "Hi"}), ("embeddings", {"input": "Hi"})):
                again = await world.client.post(f"/v1/{path}", json=body, headers=world.owner)
                assert again.status_code == 429
        assert (await world.client.get("/v1/models", headers=world.owner)).status_code == 200
        assert (await world.client.get("/api-keys", headers=world.owner)).status_code == 200
