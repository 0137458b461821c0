"""The wires in an app and at `/v1`: the same operations, under the app's settings whichever base its key is used at."""

from typing import Any

import anthropic
import openai
import pytest

from tests.people import create_key
from tests.tools.ai.conftest import HELLO, MINI, TEXT, Installation, parse_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN_KEY = "sk-proj-customers-own-0000wxyz"
ASKED: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": HELLO},
    "responses": {"input": "Hello!"},
    "messages": {"messages": HELLO, "max_tokens": 50},
}


@pytest.fixture(params=list(ASKED))
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def create_configured_app(world: Installation, **settings: Any) -> str:
    app_id = await world.create_app()
    answer = await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)
    assert answer.status_code == 200, answer.text
    return app_id


async def list_bases(world: Installation, app_id: str) -> list[tuple[str, dict[str, str]]]:
    """Where the app's models are called, and as whom."""
    of_app = await create_key(world, key_scope="app", target_app_id=app_id)
    return [(f"/v1/{app_id}", await world.user_headers(app_id, "ada")), (f"/v1/{app_id}", of_app), ("/v1", of_app)]


async def post_request(world: Installation, base: str, path: str, by: Any, **further: Any) -> Any:
    return await world.client.post(f"{base}/{path}", json={**ASKED[path], **further}, headers=by)


async def test_an_apps_settings_hold_on_each_wire_and_at_both_bases(world: Installation, path: str) -> None:
    failing_model, stands_in = world.add_model("500"), world.add_model("plain")
    allowed_models = [MINI, failing_model, stands_in]
    app_id = await create_configured_app(
        world, defaultModel=MINI, allowedModels=allowed_models, fallbackModels=[stands_in], maxTokensPerRequest=7
    )
    for base, by in await list_bases(world, app_id):
        answer = await post_request(world, base, path, by)
        assert (answer.status_code, answer.headers["x-baobab-model"]) == (200, MINI), answer.text
        sent_body = world.fake.requests[-1].json
        assert 7 in (
            sent_body.get("max_tokens"),
            sent_body.get("max_completion_tokens"),
            sent_body.get("max_output_tokens"),
        )
        refusal = await post_request(world, base, path, by, model="baobab/echo")
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "MODEL_NOT_ALLOWED")
        assert (await post_request(world, base, path, by, model=failing_model)).headers["x-baobab-model"] == stands_in
        events = parse_events((await post_request(world, base, path, by, stream=True)).text)
        assert len(events) > 7
    usage = await world.list_usage(app_id=app_id)
    assert sum(one.requests for one in usage) == 3 * 3


async def test_an_apps_own_key_pays_on_each_wire_and_at_both_bases(world: Installation, path: str) -> None:
    app_id = await create_configured_app(world, byokKey=OWN_KEY)
    for base, by in await list_bases(world, app_id):
        answer = await post_request(world, base, path, by, model=MINI)
        assert float(answer.headers["x-baobab-cost-usd"]) == 0
        assert world.fake.requests[-1].headers["authorization"] == f"Bearer {OWN_KEY}"


async def test_official_clients_need_an_apps_address_and_a_key(world: Installation) -> None:
    app_id = await world.create_app()
    of_app = (await create_key(world, key_scope="app", target_app_id=app_id))["authorization"].removeprefix("Bearer ")
    for base in (f"{world.address}/v1/{app_id}", f"{world.address}/v1"):
        async with world.build_client(base_url=base, api_key=of_app, max_retries=0) as client:
            response = await client.responses.create(model=MINI, input="Hello!")
            assert response.output_text == TEXT
            again = await client.responses.create(model=MINI, input="And?", previous_response_id=response.id)
            assert (await client.responses.retrieve(again.id)).output_text == TEXT
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve("resp_none")
    # Anthropic's clients write `/v1` themselves; others of its wire do not.
    for address in (f"{world.address}/v1/{app_id}", world.address):
        async with anthropic.AsyncAnthropic(base_url=address, api_key=of_app, max_retries=0) as other:
            message = await other.messages.create(
                model=MINI, max_tokens=50, messages=[{"role": "user", "content": "Hi"}]
            )
            assert message.content[0].type == "text"
            token_count = await other.messages.count_tokens(model=MINI, messages=[{"role": "user", "content": "Hi"}])
            assert token_count.input_tokens > 0
            with pytest.raises(anthropic.NotFoundError):
                await other.messages.create(
                    model="nobody/nothing", max_tokens=50, messages=[{"role": "user", "content": ""}]
                )


async def test_what_a_key_of_an_app_answers_at_one_base_it_goes_on_with_at_the_other(world: Installation) -> None:
    app_id = await world.create_app()
    (_, _), (in_app, by), (at_root, _) = await list_bases(world, app_id)
    body = (await post_request(world, at_root, "responses", by, model="baobab/echo")).json()
    read = await world.client.get(f"{in_app}/responses/{body['id']}", headers=by)
    assert read.json()["output"] == body["output"]
    strangers = await world.client.get(f"/v1/responses/{body['id']}", headers=world.owner)
    assert strangers.status_code == 404
