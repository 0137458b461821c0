"""Why a provider has refused: the operator is told all of it, the caller no secrets, and which field is at fault."""

import json
import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import openai
import pytest

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.providers import Provider
from tests.runtime.gateway.upstream import CannedAnswer
from tests.tools.ai.conftest import HELLO, LAB_KEY, OTHER_KEY, TEXT, Installation, open_installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN_KEY = "sk-proj-customers-own-0000wxyz"


def add_failing_model(world: Installation, name: str, status: int = 400, *, server: str = "lab", **error: Any) -> str:
    """A model whose provider says this, in the words of either wire."""
    headers = {"content-type": "application/json", **error.pop("headers", {})}
    error_body = {"type": "error", "error": {"type": "invalid_request_error", **error}}
    world.fake.canned_answers[name] = CannedAnswer(json.dumps(error_body).encode(), status, headers)
    return add_model(world, f"said:{name}", server)


def add_model(world: Installation, behaviour: str, server: str) -> str:
    """A model that behaves so; Anthropic's are asked in their own wire, by chat completions too."""
    model = world.add_model(behaviour, server=server)
    if server == "anthropic":
        gateway = world.application.services.part(Gateway)
        gateway.add_provider(Provider("anthropic", world.fake.url, OTHER_KEY, "translated"), [gateway.get_model(model)])
    return model


@pytest.mark.parametrize("server", ["lab", "anthropic"])
async def test_the_reason_is_told_to_the_caller_and_logged_without_secrets(
    world: Installation, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    words = f"Invalid schema for tool get_weather: key {LAB_KEY}, deployment azure-eu-blue at models.corp.example:443"
    model = add_failing_model(world, f"schema-{server}", server=server, message=words)
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    with caplog.at_level(logging.WARNING):
        refusal = await world.chat(model, tools=[tool])
    message = refusal.json()["error"]["message"]
    assert refusal.status_code == 400
    assert "Invalid schema for tool get_weather: key [...], deployment [...]" in message
    (line,) = [record for record in caplog.records if "refused a request" in record.message]
    log_fields = vars(line)
    assert (log_fields["model"], log_fields["status"]) == (model, 400)
    assert "deployment azure-eu-blue at models.corp.example" in log_fields["reason"]
    assert (LAB_KEY in log_fields["reason"]) is (server == "anthropic")
    assert log_fields["request_id"] == refusal.headers["x-request-id"]


async def test_numbers_are_told_where_the_providers_address_has_the_same_ones(world: Installation) -> None:
    # The provider is at 127.0.0.1.
    words = "temperature must be between 0 and 1, asked at 127.0.0.1"
    refusal = await world.chat(add_failing_model(world, "numbers", message=words))
    assert "must be between 0 and 1, asked at [...]" in refusal.json()["error"]["message"]


async def test_a_long_reason_is_cut(world: Installation) -> None:
    refusal = await world.chat(add_failing_model(world, "long", message="No good word. " * 500))
    assert len(refusal.json()["error"]["message"]) < 600


@pytest.mark.parametrize(
    ("path", "body", "server", "error", "param"),
    [
        ("chat/completions", {"temperature": 0.5}, "lab", {"message": "Bad.", "param": "temperature"}, "temperature"),
        ("chat/completions", {"temperature": 0.5}, "lab", {"message": "Bad value of 'temperature'."}, "temperature"),
        ("messages", {"top_k": 3}, "anthropic", {"message": "top_k: must be small"}, "top_k"),
        ("messages", {}, "anthropic", {"message": "messages.0.content: too plain"}, "messages.0.content"),
        ("messages", {}, "anthropic", {"message": "hosts.internal: too plain"}, None),
    ],
)
async def test_the_field_at_fault_is_named(
    world: Installation, path: str, body: dict[str, Any], server: str, error: Any, param: str | None
) -> None:
    model = add_failing_model(world, f"named-{len(world.fake.canned_answers)}", server=server, **error)
    request_body = {"model": model, "messages": HELLO, "max_tokens": 9, **body}
    refusal = await world.client.post(f"/v1/{path}", json=request_body, headers=world.owner)
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, param)


# Parameters


NO_DIFFERENCE: dict[str, Any] = {
    "presence_penalty": 0,
    "frequency_penalty": 0.0,
    "n": 1,
    "logprobs": False,
    "logit_bias": {},
    "seed": None,
    "top_logprobs": None,
    "parallel_tool_calls": True,
    "stop": None,
    "user": "",
}


async def test_what_makes_no_difference_is_left_out_where_a_model_does_not_take_it(world: Installation) -> None:
    answer = await world.chat("claude-sonnet-4-5", **NO_DIFFERENCE)
    assert answer.status_code == 200, answer.text
    assert "x-baobab-dropped" not in answer.headers
    assert not NO_DIFFERENCE.keys() & world.fake.requests[-1].json.keys()


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        ("claude-sonnet-4-5", "presence_penalty", 0.5),
        ("claude-sonnet-4-5", "seed", 7),
        ("claude-sonnet-4-5", "logit_bias", {"50256": -100}),
        ("claude-opus-4-7", "temperature", 0.5),
        ("gpt-5-pro", "temperature", 0.5),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_model_does_not_take_is_named_or_left_out_as_the_request_says(
    world: Installation, model: str, name: str, value: Any, stream: bool
) -> None:
    request_count = len(world.fake.requests)
    refusal = await world.chat(model, stream=stream, **{name: value})
    error = refusal.json()["error"]
    assert (refusal.status_code, error["param"], error["code"]) == (400, name, "invalid_request"), refusal.text
    assert f"`{name}`" in error["message"]
    assert len(world.fake.requests) == request_count
    answer = await world.chat(model, stream=stream, drop_params=True, **{name: value})
    assert (answer.status_code, answer.headers.get("x-baobab-dropped")) == (200, name), answer.text
    assert not {name, "drop_params"} & world.fake.requests[-1].json.keys()


@pytest.mark.parametrize("value", [1, 0.5])
async def test_what_a_relayed_model_refuses_is_left_out_as_the_setting_says(world: Installation, value: float) -> None:
    words = "Unsupported value: 'temperature' does not support this with this model."
    model = add_failing_model(
        world, f"unsupported-{value}", message=words, param="temperature", code="unsupported_value"
    )
    request_count = len(world.fake.requests)
    refusal = await world.chat(model, temperature=value, drop_params=False)
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, None if value == 1 else "temperature")
    # What is the default makes no difference, so it was left out at once; here it is refused all the same.
    assert ["temperature" in request.json for request in list(world.fake.requests)[request_count:]] == (
        [True, False] if value == 1 else [True]
    )
    await world.chat(model, temperature=value, drop_params=True)
    sent_body = world.fake.requests[-1].json
    assert not {"temperature", "drop_params"} & sent_body.keys()


async def test_whether_parameters_are_left_out_is_true_or_false(world: Installation) -> None:
    wrong = await world.chat("claude-sonnet-4-5", drop_params="yes")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "drop_params")


async def test_an_app_says_what_is_left_out_where_its_requests_do_not(world: Installation) -> None:
    app_id = await world.create_app()
    config, path = f"/v1/{app_id}/ai/config", f"/v1/{app_id}"
    assert (await world.chat("claude-sonnet-4-5", path=path, seed=7)).status_code == 400
    response = await world.client.put(config, json={"dropParams": True}, headers=world.owner)
    assert response.json()["config"]["dropParams"] is True, response.text
    answer = await world.chat("claude-sonnet-4-5", path=path, seed=7)
    assert (answer.status_code, answer.headers["x-baobab-dropped"]) == (200, "seed")
    assert (await world.chat("claude-sonnet-4-5", path=path, seed=7, drop_params=False)).status_code == 400
    assert (await world.chat("claude-sonnet-4-5", seed=7)).status_code == 400
    await world.client.put(config, json={"dropParams": None}, headers=world.owner)
    assert (await world.chat("claude-sonnet-4-5", path=path, seed=7)).status_code == 400


FUNCTION = {"name": "get_weather", "parameters": {"type": "object"}}
FREE_TEXT = {"type": "custom", "custom": {"name": "patch"}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "fields", "param"),
    [
        ("gpt-5-pro", {"n": 3}, "n"),
        ("claude-sonnet-4-5", {"n": 3}, "n"),
        ("claude-sonnet-4-5", {"functions": [FUNCTION]}, "functions"),
        ("gpt-5-pro", {"function_call": {"name": "get_weather"}}, "function_call"),
        ("claude-sonnet-4-5", {"tools": [FREE_TEXT]}, "tools[0].type"),
        ("claude-sonnet-4-5", {"tool_choice": FREE_TEXT}, "tool_choice.type"),
    ],
)
async def test_what_would_be_lost_on_the_way_to_a_model_is_refused_by_its_name(
    world: Installation, model: str, fields: dict[str, Any], param: str, stream: bool
) -> None:
    before = len(world.fake.requests)
    refusal = await world.chat(model, stream=stream, drop_params=True, **fields)
    error = refusal.json()["error"]
    assert (refusal.status_code, error["code"], error["param"]) == (400, "invalid_request", param), refusal.text
    assert len(world.fake.requests) == before


async def test_a_tool_of_free_text_is_refused_where_a_response_is_asked_for_too(world: Installation) -> None:
    body = {"model": "claude-sonnet-4-5", "input": "hi", "tools": [{"type": "custom", "name": "patch"}]}
    refusal = await world.client.post("/v1/responses", json=body, headers=world.owner)
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "tools[0].type")


async def test_the_operator_says_what_is_left_out_where_nobody_else_does(tmp_path: Path) -> None:
    vendor = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "ANTHROPIC_BASE_URL": "{url}"}
    async with open_installation(tmp_path / "data", {"BAOBAB_AI_DROP_PARAMS": "true"}, **vendor) as world:
        assert (await world.chat("claude-sonnet-4-5", seed=7)).headers["x-baobab-dropped"] == "seed"
        assert (await world.chat("claude-sonnet-4-5", seed=7, drop_params=False)).status_code == 400


# What clients act on


@pytest.mark.parametrize(
    ("status", "error", "headers", "expected_refusal"),
    [
        (400, {"code": "content_policy_violation", "message": "x"}, {}, (400, "content_policy_violation", {})),
        (400, {"code": "content_filter", "message": "x"}, {}, (400, "content_filter", {})),
        (400, {"code": "context_length_exceeded", "message": "x"}, {}, (400, "context_length_exceeded", {})),
        (
            400,
            {"message": "This model's maximum context length is 8192 tokens."},
            {},
            (400, "context_length_exceeded", {}),
        ),
        (
            429,
            {"code": "insufficient_quota", "message": "x"},
            {},
            (502, "upstream_unpaid", {"x-should-retry": "false"}),
        ),
        (402, {"message": "x"}, {}, (502, "upstream_unpaid", {"x-should-retry": "false"})),
        (
            400,
            {"message": "Your credit balance is too low to access the API."},
            {},
            (502, "upstream_unpaid", {"x-should-retry": "false"}),
        ),
        (401, {"message": "x"}, {}, (502, "upstream_denied", {"x-should-retry": "false"})),
        (429, {"message": "x"}, {}, (429, "rate_limit_exceeded", {"retry-after": "1"})),
        (429, {"message": "x"}, {"retry-after": "7"}, (429, "rate_limit_exceeded", {"retry-after": "7"})),
        (
            429,
            {"message": "x"},
            {"retry-after": "1.5"},
            (429, "rate_limit_exceeded", {"retry-after": "2", "retry-after-ms": "1500"}),
        ),
        (
            429,
            {"message": "x"},
            {"retry-after": "1", "retry-after-ms": "250"},
            (429, "rate_limit_exceeded", {"retry-after": "1", "retry-after-ms": "250"}),
        ),
        (429, {"message": "x"}, {"retry-after": "soon"}, (429, "rate_limit_exceeded", {"retry-after": "1"})),
        (503, {"message": "x"}, {"retry-after": "9"}, (502, "upstream_error", {"retry-after": "9"})),
    ],
)
async def test_what_clients_act_on_is_kept(
    world: Installation,
    status: int,
    error: Any,
    headers: dict[str, str],
    expected_refusal: tuple[int, str, dict[str, str]],
) -> None:
    model = add_failing_model(world, f"acting-{status}", status, headers=headers, **error)
    answer = await world.chat(model)
    assert (answer.status_code, answer.json()["error"]["code"]) == expected_refusal[:2]
    assert {name: answer.headers.get(name) for name in expected_refusal[2]} == expected_refusal[2]


async def test_a_date_to_wait_for_is_told_in_seconds(world: Installation) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=3600), usegmt=True)
    answer = await world.chat(add_failing_model(world, "dated", 429, message="x", headers={"retry-after": later}))
    assert 3000 < int(answer.headers["retry-after"]) <= 3600


async def test_what_does_not_fit_says_so_in_the_words_that_clients_look_for(world: Installation) -> None:
    async with world.build_client(max_retries=0) as client:
        for model in (world.add_model("context"), add_model(world, "context", "anthropic")):
            with pytest.raises(openai.BadRequestError, match="This model's maximum context length is") as refusal:
                await client.chat.completions.create(model=model, messages=HELLO)
            assert refusal.value.code == "context_length_exceeded"


async def test_the_official_client_asks_once_where_the_operator_must_act(world: Installation) -> None:
    model = add_failing_model(
        world, "unpaid", 429, code="insufficient_quota", message="You exceeded your current quota."
    )
    request_count = len(world.fake.requests)
    async with world.build_client(max_retries=2) as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model=model, messages=HELLO)
    assert len(world.fake.requests) == request_count + 1


@pytest.mark.parametrize("behaviour", ["404", "context", "said:flagged"])
async def test_another_model_stands_in_where_it_may_do_better(world: Installation, behaviour: str) -> None:
    add_failing_model(world, "flagged", code="content_policy_violation", message="x")
    app_id = await world.create_app()
    stands_in = world.add_model("plain")
    settings = {"fallbackModels": [stands_in]}
    assert (await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)).status_code == 200
    answer = await world.chat(world.add_model(behaviour), path=f"/v1/{app_id}")
    assert (answer.status_code, answer.headers["x-baobab-model"]) == (200, stands_in)
    assert answer.json()["choices"][0]["message"]["content"] == TEXT


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(401, "invalid_api_key", "is not accepted by"), (429, "insufficient_quota", "is not paid for at")],
)
async def test_a_key_of_ones_own_that_fails_is_reported_and_not_hidden(
    world: Installation, status: int, code: str, words: str
) -> None:
    app_id = await world.create_app()
    settings = {"fallbackModels": ["baobab/echo"], "byokKey": OWN_KEY, "byokProvider": "openai"}
    assert (await world.client.put(f"/v1/{app_id}/ai/config", json=settings, headers=world.owner)).status_code == 200
    model = add_failing_model(
        world, f"own-{status}", status, server="openai", code=code, message="Check the plan of this account."
    )
    refusal = await world.chat(model, path=f"/v1/{app_id}")
    assert refusal.status_code == 502
    message = refusal.json()["error"]["message"]
    assert f"Your own key {words} the model's provider: Check the plan of this account." in message
    assert refusal.headers["x-should-retry"] == "false"
