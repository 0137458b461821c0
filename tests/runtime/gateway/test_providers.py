"""Whom an installation can call: by its environment, by its settings, and by what answers on loopback."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.probe import ModelListFailed, fetch_models, probe_servers
from baobab.runtime.gateway.providers import Provider, list_providers, parse_servers
from baobab.runtime.net.egress import AddressRefused, Egress

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
TIMEOUT_SECONDS = 60.0  # seconds: for what does answer, on a machine that may be busy


@asynccontextmanager
async def serve_models(handler: Handler) -> AsyncIterator[int]:
    """A model server on loopback; yields its port."""
    app = web.Application()
    app.router.add_get("/v1/models", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def list_handler(*entries: Any) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": list(entries)})

    return answer


async def fetch_models_of(provider: Provider) -> list[Model]:
    egress = Egress(["127.0.0.0/8"])
    try:
        return await fetch_models(provider, egress.request)
    finally:
        await egress.close()


async def fetch_offered(*entries: Any, own: bool = True) -> list[Model]:
    async with serve_models(list_handler(*entries)) as port:
        return await fetch_models_of(
            Provider("corp", f"http://127.0.0.1:{port}/v1", "", "openai", lists_models=True, is_own=own)
        )


# By the environment


@pytest.mark.parametrize(
    ("variable", "name", "api_base", "wire"),
    [
        ("OPENAI_API_KEY", "openai", "https://api.openai.com/v1", "openai"),
        ("ANTHROPIC_API_KEY", "anthropic", "", "translated"),
        ("GEMINI_API_KEY", "gemini", "", "translated"),
        ("GOOGLE_API_KEY", "gemini", "", "translated"),
        ("MISTRAL_API_KEY", "mistral", "", "translated"),
        ("DEEPSEEK_API_KEY", "deepseek", "https://api.deepseek.com/v1", "openai"),
        ("GROQ_API_KEY", "groq", "https://api.groq.com/openai/v1", "openai"),
        ("TOGETHER_API_KEY", "together_ai", "https://api.together.ai/v1", "openai"),
        ("XAI_API_KEY", "xai", "https://api.x.ai/v1", "openai"),
        ("OPENROUTER_API_KEY", "openrouter", "https://openrouter.ai/api/v1", "openai"),
        ("FIREWORKS_API_KEY", "fireworks_ai", "https://api.fireworks.ai/inference/v1", "openai"),
        ("COHERE_API_KEY", "cohere", "", "translated"),
    ],
)
def test_a_key_in_the_environment_is_a_provider(variable: str, name: str, api_base: str, wire: str) -> None:
    (provider,) = list_providers({variable: "sk-1", "HOME": "/root"})

    assert (provider.name, provider.api_base, provider.api_key, provider.wire) == (name, api_base, "sk-1", wire)
    assert not provider.is_own


def test_without_keys_there_are_no_providers() -> None:
    assert list_providers({"OPENAI_API_KEY": " ", "OPENAI_BASE_URL": "https://proxy.test/v1"}) == []


def test_a_key_is_not_shown() -> None:
    assert "sk-1" not in repr(list_providers({"OPENAI_API_KEY": "sk-1"}))


def test_the_first_of_two_names_for_one_key_counts() -> None:
    (provider,) = list_providers({"GOOGLE_API_KEY": "other", "GEMINI_API_KEY": "mine"})

    assert provider.api_key == "mine"


def test_a_base_url_in_the_environment_takes_the_place_of_the_vendors() -> None:
    (provider,) = list_providers({"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "https://proxy.test/v1/"})

    assert provider.api_base == "https://proxy.test/v1"


# By the settings


def test_servers_are_declared_by_name_and_address() -> None:
    servers = parse_servers("corp=https://models.test/v1/, ollama=http://10.0.0.5:11434/v1,")

    assert [(server.name, server.api_base) for server in servers] == [
        ("corp", "https://models.test/v1"),
        ("ollama", "http://10.0.0.5:11434/v1"),
    ]


def test_no_text_declares_no_servers() -> None:
    assert parse_servers("") == ()


def test_the_key_of_a_server_is_in_the_variable_of_its_name() -> None:
    servers = parse_servers("corp-llm=https://models.test/v1,open=https://open.test/v1")

    keyed_provider, keyless_provider = list_providers({"CORP_LLM_API_KEY": "sk-2"}, servers)

    assert keyed_provider == Provider(
        "corp-llm", "https://models.test/v1", "sk-2", "openai", lists_models=True, is_own=True
    )
    assert keyless_provider.api_key == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("https://host/v1", "a server is name=URL"),
        ("Corp=https://host/v1", "a server is name=URL"),
        ("corp", "a server is name=URL"),
        ("openai=https://host/v1", "openai is the name of a vendor"),
        ("meta-llama=https://host/v1", "meta-llama is the name of a vendor"),
        ("baobab=https://host/v1", "baobab is the name of a vendor"),
        ("corp=host/v1", "must be an http:// or https:// address"),
        ("corp=ftp://host/v1", "must be an http:// or https:// address"),
        ("corp=https://", "must be an http:// or https:// address"),
        ("corp=https://host:99999/v1", "is not a URL"),
        ("corp=https://[host/v1", "is not a URL"),
        ("corp=https://me:secret@host/v1", "takes no password"),
        ("corp=https://host/v1?key=secret", "takes no password"),
        ("corp=https://a/v1,corp=https://b/v1", "two servers are called corp"),
    ],
)
def test_a_wrong_declaration_is_one_line_without_secrets(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as error_info:
        parse_servers(text)

    assert "\n" not in str(error_info.value)
    assert "secret" not in str(error_info.value)


# What a server of one's own has


async def test_the_models_of_a_server_cost_nothing_and_carry_its_name() -> None:
    (model,) = await fetch_offered({"id": "llama3.2:3b", "object": "model", "max_model_len": 8192})

    assert (model.id, model.provider, model.upstream_name) == ("corp/llama3.2:3b", "corp", "llama3.2:3b")
    assert model.price == Price(0, 0)
    assert model.context_window == 8192
    assert "local" in model.features


async def test_a_model_for_embeddings_is_known_by_its_name() -> None:
    models = await fetch_offered({"id": "nomic-embed-text"}, {"id": "qwen3"})

    assert [model.modality for model in models] == ["embedding", "chat"]


async def test_a_server_is_asked_with_its_key() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": request.headers["Authorization"].replace(" ", "-")}]})

    async with serve_models(answer) as port:
        provider = Provider("corp", f"http://127.0.0.1:{port}/v1", "sk-3", "openai", lists_models=True, is_own=True)
        (model,) = await fetch_models_of(provider)

    assert model.id == "corp/Bearer-sk-3"


async def test_listed_prices_are_taken_exactly() -> None:
    (model,) = await fetch_offered(
        {
            "id": "openai/gpt-9",
            "context_length": 128000,
            "pricing": {"prompt": "0.00000015", "completion": "0.0000006", "input_cache_read": "0.000000075"},
        },
        own=False,
    )

    assert model.id == "corp/openai/gpt-9"
    assert model.price == Price(150_000_000, 600_000_000, cached=75_000_000)
    assert "local" not in model.features


@pytest.mark.parametrize(
    "pricing",
    [
        None,
        {"prompt": "-1", "completion": "-1"},
        {"prompt": "0", "completion": "0"},
        {"prompt": "0.000001", "completion": "0.000001", "request": "0.005"},
        {"prompt": "1e999999999", "completion": "1e999999999"},
        {"prompt": {}, "completion": []},
        "cheap",
    ],
)
async def test_what_others_list_without_a_price_is_not_sold(pricing: object) -> None:
    assert await fetch_offered({"id": "gpt-9", "pricing": pricing}, own=False) == []


async def test_what_others_call_free_costs_nothing() -> None:
    (model,) = await fetch_offered({"id": "qwen/qwen9:free", "pricing": {"prompt": "0", "completion": "0"}}, own=False)

    assert model.price == Price(0, 0)


async def test_entries_that_name_no_model_are_left_out() -> None:
    odd: list[Any] = [{}, {"id": 7}, {"id": ""}, {"id": "x" * 300}, {"id": "a\nb"}, {"id": "a b"}, "gpt-9", None]

    assert [model.id for model in await fetch_offered(*odd, {"id": "one"}, {"id": "one"})] == ["corp/one"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"data": 7}', b"[" * 100_000])
async def test_an_answer_that_is_no_list_is_an_error(body: bytes) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body)

    async with serve_models(answer) as port:
        with pytest.raises(ModelListFailed):
            await fetch_models_of(
                Provider("corp", f"http://127.0.0.1:{port}/v1", "", "openai", lists_models=True, is_own=True)
            )


async def test_a_refusal_is_an_error_that_says_the_status() -> None:
    async def answer(_request: web.Request) -> web.Response:
        raise web.HTTPUnauthorized

    async with serve_models(answer) as port:
        with pytest.raises(ModelListFailed) as error_info:
            await fetch_models_of(
                Provider("corp", f"http://127.0.0.1:{port}/v1", "", "openai", lists_models=True, is_own=True)
            )

    assert error_info.value.details == {"server": "corp", "status": 401}


@pytest.mark.parametrize(("is_guarded", "model_count"), [(False, 1), (True, None)])
async def test_a_list_that_is_made_to_take_time_is_none_where_a_customer_names_the_server(
    *, is_guarded: bool, model_count: int | None
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text='{"data": [{"id": "m"}], "further": [' + "[]," * 200_000 + "[]]}")

    async with serve_models(answer) as port:
        url = f"http://127.0.0.1:{port}/v1"
        provider = Provider("corp", url, "", "openai", lists_models=True, is_own=True, is_guarded=is_guarded)
        if model_count is None:
            with pytest.raises(ModelListFailed):
                await fetch_models_of(provider)
        else:
            assert len(await fetch_models_of(provider)) == model_count


async def test_a_declared_server_is_reached_through_the_guarded_client() -> None:
    with pytest.raises(AddressRefused):
        await fetch_models(Provider("corp", "http://127.0.0.1:8081/v1", "", "openai", is_own=True), Egress().request)


# What answers on loopback


async def test_local_servers_are_found_with_their_models() -> None:
    async with (
        serve_models(list_handler({"id": "llama3.2"})) as ollama,
        serve_models(list_handler({"id": "qwen3"})) as vllm,
    ):
        found_servers = await probe_servers(1, {"ollama": ollama, "vllm": vllm}, seconds=TIMEOUT_SECONDS)

    assert [model.id for _, models in found_servers for model in models] == ["ollama/llama3.2", "vllm/qwen3"]
    provider, (model,) = found_servers[0]
    assert (provider.name, provider.api_base, provider.wire) == ("ollama", f"http://127.0.0.1:{ollama}/v1", "openai")
    assert provider.is_own
    assert model.price == Price(0, 0)
    assert "local" in model.features


async def test_we_do_not_take_ourselves_for_a_local_server() -> None:
    async with serve_models(list_handler({"id": "baobab/echo"})) as port:
        assert await probe_servers(port, {"vllm": port}, seconds=TIMEOUT_SECONDS) == []


async def test_a_local_server_that_settings_declare_is_not_looked_for() -> None:
    async with serve_models(list_handler({"id": "llama3.2"})) as port:
        assert await probe_servers(1, {"ollama": port}, declared_names=["ollama"], seconds=TIMEOUT_SECONDS) == []


async def test_nobody_there_is_nothing_found() -> None:
    with socket.socket() as taken_socket:
        # Taken, so that nobody else comes there, and not listened on.
        taken_socket.bind(("127.0.0.1", 0))

        assert await probe_servers(1, {"ollama": taken_socket.getsockname()[1]}, seconds=TIMEOUT_SECONDS) == []


async def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    async def silent(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serve_models(silent) as port:
        assert await probe_servers(1, {"vllm": port}, seconds=0.05) == []


async def answer_html(_request: web.Request) -> web.Response:
    return web.Response(text="<html>welcome</html>")


async def answer_unauthorized(_request: web.Request) -> web.Response:
    raise web.HTTPUnauthorized


async def answer_redirect(_request: web.Request) -> web.Response:
    raise web.HTTPFound("https://models.test/v1/models")


async def answer_endlessly(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    try:
        while True:
            await response.write(b" " * 2**20)
    except ConnectionError:
        return response


async def answer_nested(_request: web.Request) -> web.Response:
    return web.Response(text="[" * 100_000)


@pytest.mark.parametrize(
    "handler", [answer_html, answer_unauthorized, answer_redirect, answer_endlessly, answer_nested, list_handler()]
)
async def test_what_answers_otherwise_is_no_model_server(handler: Handler) -> None:
    async with serve_models(handler) as port:
        assert await probe_servers(1, {"llamacpp": port}, seconds=TIMEOUT_SECONDS) == []


async def test_a_server_cannot_flood_the_catalogue() -> None:
    async def many(_request: web.Request) -> web.Response:
        return web.Response(text=json.dumps({"data": [{"id": f"m{number}"} for number in range(5000)]}))

    async with serve_models(many) as port:
        ((_, models),) = await probe_servers(1, {"lmstudio": port}, seconds=TIMEOUT_SECONDS)

    assert len(models) == 2000
