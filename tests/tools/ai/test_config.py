"""An app's settings for models: who changes them, and what they do to a call."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import insert

from baobab.runtime.gateway.gateway import Gateway
from baobab.tools.ai import settings
from baobab.tools.ai.tables import app_ai
from tests.backends import read_database
from tests.people import create_key, create_person
from tests.servers import TIMEOUT_SECONDS
from tests.tools.ai.conftest import HELLO, LAB_KEY, MINI, VENDOR_KEY, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN_KEY = "sk-proj-customers-own-0000wxyz"


async def configure(world: Installation, app_id: str, **settings: Any) -> dict[str, Any]:
    answer = await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)
    assert answer.status_code == 200, answer.text
    config: dict[str, Any] = answer.json()["config"]
    return config


async def test_nothing_is_set_at_first(world: Installation) -> None:
    app_id = await world.create_app()
    answer = await world.client.get(f"/v1/{app_id}/ai/config", headers=world.owner)
    assert answer.json() == {
        "config": {
            "defaultModel": None,
            "maxTokensPerRequest": None,
            "allowedModels": [],
            "fallbackModels": [],
            "byokKey": None,
            "byokProvider": None,
            "timeouts": None,
            "dropParams": None,
        }
    }


async def test_a_change_leaves_the_rest_as_it_was(world: Installation) -> None:
    app_id = await world.create_app()
    await configure(world, app_id, defaultModel="baobab/echo", maxTokensPerRequest=100)
    config = await configure(world, app_id, allowedModels=[MINI], maxTokensPerRequest=None)
    assert (config["defaultModel"], config["maxTokensPerRequest"]) == ("baobab/echo", None)
    assert config["allowedModels"] == [MINI]


@pytest.mark.parametrize(
    "wrong",
    [
        {"maxTokensPerRequest": 0},
        {"maxTokensPerRequest": 100_001},
        {"maxTokensPerRequest": "5"},
        {"allowedModels": "all"},
        {"defaultModel": ""},
        {"byokKey": "short"},
        {"byokKey": "no-prefix-that-anybody-knows"},
        {"byokKey": "sk-several-vendors-begin-so"},
        {"byokKey": OWN_KEY, "byokProvider": "nobody-here"},
        {"byokProvider": "openai"},
        {"byokKey": None, "byokProvider": "openai"},
        {"temperature": 1},
    ],
)
async def test_what_is_no_setting_is_refused(world: Installation, wrong: dict[str, Any]) -> None:
    app_id = await world.create_app()
    answer = await world.client.put(f"/v1/{app_id}/ai/config", json=wrong, headers=world.owner)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_only_who_runs_the_app_reads_or_changes_its_settings(world: Installation) -> None:
    app_id = await world.create_app()
    stranger, user = await create_person(world, "stranger"), await world.user_headers(app_id, "somebody")
    for by in (stranger.headers, user):
        for method, path in (("GET", "config"), ("PUT", "config"), ("GET", "usage")):
            body: dict[str, Any] = {"json": {}} if method == "PUT" else {}
            answer = await world.client.request(method, f"/v1/{app_id}/ai/{path}", headers=by, **body)
            assert answer.status_code == 403, (method, path, answer.text)
            assert (answer.json()["error"], answer.json()["code"]) == ("forbidden", "FORBIDDEN")


async def test_those_whose_app_it_is_may_chat_and_nobody_else(world: Installation) -> None:
    app_id, other = await world.create_app(), await world.create_app()
    member = await create_person(world, "member", role="member")
    own_key = await create_key(world, key_scope="app", target_app_id=app_id)
    user = await world.user_headers(app_id, "somebody")
    for by in (world.owner, member.headers, own_key, user):
        assert (await world.chat(by=by, path=f"/v1/{app_id}")).status_code == 200
    stranger = await create_person(world, "stranger")
    for by, path in ((stranger.headers, app_id), (own_key, other), (user, other)):
        answer = await world.chat(by=by, path=f"/v1/{path}")
        assert answer.status_code in {401, 403}, answer.text
        if answer.status_code == 403:
            assert (answer.json()["error"], answer.json()["code"]) == ("forbidden", "FORBIDDEN")


async def test_an_app_that_is_not_there_is_told_in_words_of_its_own(world: Installation) -> None:
    for path in ("chat/completions", "embeddings"):
        answer = await world.client.post(
            f"/v1/app_zzzzzzzzzzzz/{path}", json={"messages": HELLO, "input": "x"}, headers=world.owner
        )
        assert (answer.status_code, answer.json()["error"]) == (404, "app_not_found")


async def test_the_default_model_answers_where_none_is_named(world: Installation) -> None:
    app_id = await world.create_app()
    await configure(world, app_id, defaultModel="baobab/echo")
    assert (await world.chat(None, path=f"/v1/{app_id}")).headers["x-baobab-model"] == "baobab/echo"
    assert (await world.chat(MINI, path=f"/v1/{app_id}")).headers["x-baobab-model"] == MINI


async def test_a_model_that_is_not_allowed_is_refused_and_the_others_are_named(world: Installation) -> None:
    app_id = await world.create_app()
    await configure(world, app_id, allowedModels=["baobab/echo", "lab/gone"])
    answer = await world.chat(MINI, path=f"/v1/{app_id}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (403, "MODEL_NOT_ALLOWED")
    assert "baobab/echo, lab/gone" in error["message"]
    assert (await world.chat("baobab/echo", path=f"/v1/{app_id}")).status_code == 200
    response = await world.client.get(f"/v1/{app_id}/ai/models", headers=world.owner)
    assert [model["id"] for model in response.json()["models"]] == ["baobab/echo"]


async def test_a_model_is_allowed_by_whichever_name_it_has(world: Installation) -> None:
    app_id = await world.create_app()
    await configure(world, app_id, allowedModels=["gpt-4o-mini"])
    for name in (MINI, "gpt-4o-mini", "GPT-4o-mini"):
        assert (await world.chat(name, path=f"/v1/{app_id}")).status_code == 200
    response = await world.client.get(f"/v1/{app_id}/ai/models", headers=world.owner)
    assert [model["id"] for model in response.json()["models"]] == [MINI]


async def test_only_allowed_models_are_fallen_back_on(world: Installation) -> None:
    app_id = await world.create_app()
    failing_model, other, works = world.add_model("500:8"), world.add_model("not-allowed"), world.add_model("works")
    await configure(world, app_id, fallbackModels=[other, works], allowedModels=[failing_model, works])
    assert (await world.chat(failing_model, path=f"/v1/{app_id}")).headers["x-baobab-model"] == works


@pytest.mark.parametrize(
    ("request_limits", "sent_limits"),
    [
        ({}, {"max_completion_tokens": 50}),
        ({"max_tokens": 40}, {"max_tokens": 40}),
        ({"max_tokens": 60}, {"max_tokens": 50}),
        ({"max_completion_tokens": 60}, {"max_completion_tokens": 50}),
        ({"max_completion_tokens": 40, "max_tokens": 9}, {"max_completion_tokens": 40}),
    ],
)
async def test_an_answer_is_cut_to_what_the_app_allows(
    world: Installation, request_limits: dict[str, Any], sent_limits: dict[str, int]
) -> None:
    app_id = await world.create_app()
    await configure(world, app_id, maxTokensPerRequest=50)
    assert (await world.chat(path=f"/v1/{app_id}", **request_limits)).status_code == 200
    body = world.fake.requests[-1].json
    assert {name: body[name] for name in body if name.startswith("max_")} == sent_limits


async def test_models_to_fall_back_on_are_tried_in_their_order(world: Installation) -> None:
    app_id = await world.create_app()
    failing_model, busy, works = world.add_model("500:8"), world.add_model("429:8"), world.add_model("works")
    await configure(world, app_id, fallbackModels=[busy, works, MINI])
    for stream in (False, True):
        answer = await world.chat(failing_model, path=f"/v1/{app_id}", stream=stream)
        assert (answer.status_code, answer.headers["x-baobab-model"]) == (200, works)
    # What the caller did wrong is wrong everywhere.
    assert (await world.chat(world.add_model("400"), path=f"/v1/{app_id}")).status_code == 400


async def test_an_own_key_is_used_for_its_provider_only_and_not_charged(world: Installation) -> None:
    app_id = await world.create_app()
    config = await configure(world, app_id, byokKey=OWN_KEY)
    assert (config["byokKey"], config["byokProvider"]) == ("***wxyz", "openai")
    before = await world.get_spent()
    for stream in (False, True):
        answer = await world.chat(path=f"/v1/{app_id}", stream=stream)
        assert answer.status_code == 200
        assert answer.headers.get("x-baobab-cost-usd") == (None if stream else "0.000000000")
        assert world.fake.requests[-1].headers["authorization"] == f"Bearer {OWN_KEY}"
    assert await world.get_spent() == before
    # With nothing set aside, nobody sees that the stream is still being counted.
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while [(usage.byok, usage.requests, usage.cost) for usage in await world.list_usage(app_id=app_id)] != [
            (True, 2, 11_700)
        ]:
            await asyncio.sleep(0.01)
    await world.chat(world.add_model("plain"), path=f"/v1/{app_id}")
    assert world.fake.requests[-1].headers["authorization"] == f"Bearer {LAB_KEY}"
    assert await world.get_spent() == before + 5850
    usage = await world.client.get(f"/v1/{app_id}/ai/usage", headers=world.owner)
    assert usage.json()["totalRequests"] == 3
    assert usage.json()["totalCost"] == pytest.approx(5850 / 10**9)


async def test_an_own_key_that_is_refused_is_its_owners_to_put_right(world: Installation) -> None:
    app_id, catalogue = await world.create_app(), world.application.services.part(Gateway).catalogue
    mini = catalogue.find_model(MINI)
    assert mini is not None
    model = "openai-refusing/401"
    catalogue.register_models("refusing", [replace(mini, id=model, litellm="openai/401")])
    await configure(world, app_id, byokKey="no-longer-valid-key", byokProvider="openai")
    for stream in (False, True):
        error = (await world.chat(model, path=f"/v1/{app_id}", stream=stream)).json()["error"]
        assert error["code"] == "upstream_denied"
        assert "Your own key" in error["message"]


async def test_an_own_key_is_not_used_for_other_apps(world: Installation) -> None:
    app_id, other = await world.create_app(), await world.create_app()
    await configure(world, app_id, byokKey=OWN_KEY)
    for path in (f"/v1/{other}", "/v1"):
        await world.chat(path=path)
        assert world.fake.requests[-1].headers["authorization"] == f"Bearer {VENDOR_KEY}"


async def test_an_own_key_is_taken_back_with_null(world: Installation) -> None:
    app_id = await world.create_app()
    await configure(world, app_id, byokKey=OWN_KEY)
    config = await configure(world, app_id, byokKey=None)
    assert (config["byokKey"], config["byokProvider"]) == (None, None)
    await world.chat(path=f"/v1/{app_id}")
    assert world.fake.requests[-1].headers["authorization"] == f"Bearer {VENDOR_KEY}"


async def test_the_provider_of_a_key_that_does_not_tell_it_is_named(world: Installation) -> None:
    app_id = await world.create_app()
    config = await configure(world, app_id, byokKey="keys-of-this-vendor-say-nothing", byokProvider="openai")
    assert config["byokProvider"] == "openai"
    await world.chat(path=f"/v1/{app_id}")
    assert world.fake.requests[-1].headers["authorization"] == "Bearer keys-of-this-vendor-say-nothing"


async def test_an_own_key_is_for_vendors_and_for_no_server_of_the_operators(world: Installation) -> None:
    app_id, plain = await world.create_app(), world.add_model("plain")
    body = {"byokKey": "a-server-that-looks-at-no-keys", "byokProvider": "lab"}
    refusal = await world.client.put(f"/v1/{app_id}/ai/config", json=body, headers=world.owner)
    error = refusal.json()["error"]
    assert (refusal.status_code, "`lab` is not a vendor" in error["message"]) == (400, True)
    assert "openai" in error["remediation"]
    # One that was kept when it was still allowed counts for nothing.
    sealed_key = world.application.services.vault.seal(b"a-server-that-looks-at-no-keys", settings.key_context(app_id))
    kept_then = {"byok_key": sealed_key, "byok_provider": "lab", "byok_last4": "keys"}
    row = {"id": app_id, "allowed_models": [], "fallback_models": [], "updated_at": datetime.now(UTC), **kept_then}
    async with world.application.services.database.writing() as connection:
        await connection.execute(insert(app_ai), row)
    before = await world.get_spent()
    answer = await world.chat(plain, path=f"/v1/{app_id}")
    assert answer.headers["x-baobab-cost-usd"] == "0.000005850"
    assert world.fake.requests[-1].headers["authorization"] == f"Bearer {LAB_KEY}"
    assert await world.get_spent() == before + 5850


async def test_an_own_key_is_sealed_and_never_shown(world: Installation) -> None:
    app_id = await world.create_app()
    put = await world.client.put(f"/v1/{app_id}/ai/config", json={"byokKey": OWN_KEY}, headers=world.owner)
    got = await world.client.get(f"/v1/{app_id}/ai/config", headers=world.owner)
    refusal = await world.chat(world.add_model("401"), path=f"/v1/{app_id}")
    logs = await world.client.get("/v1/audit-logs", headers=world.owner)
    for answer in (put, got, refusal, logs):
        assert OWN_KEY not in answer.text
    assert OWN_KEY.encode() not in read_database(world.data)


@pytest.mark.parametrize("setting", ["defaultModel", "fallbackModels"])
@pytest.mark.parametrize("model", ["nope/nope", "text-embedding-3-small"])
async def test_a_setting_names_models_that_the_app_can_chat_with(
    baobab: Installation, setting: str, model: str
) -> None:
    app_id = await baobab.create_app()
    path = f"/v1/{app_id}/ai/config"
    body = {setting: model if setting == "defaultModel" else [MINI, model]}
    refusal = await baobab.client.put(path, json=body, headers=baobab.owner)
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, setting), refusal.text
    assert model in refusal.json()["error"]["message"]
    # A model that only a key of the app's own reaches, together with that key.
    own = {"defaultModel": "anthropic/claude-haiku-4.5", "byokKey": "sk-ant-customers-own-0000"}
    assert (await baobab.client.put(path, json=own, headers=baobab.owner)).status_code == 200
