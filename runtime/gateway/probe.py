"""Asks model servers for their lists of models: servers that may run on this machine, and declared ones.

for provider, models in await probe_servers(own_port=8000):  # one request to each port of loopback
    catalogue.register_models(provider.name, models)
catalogue.register_models("corp", await fetch_models(corp, egress.request))
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from pydantic_core import from_json

from baobab.runtime.gateway.json_weight import is_heavy
from baobab.runtime.gateway.model import Modality, Model, Price
from baobab.runtime.gateway.pricing import to_nanos, to_nanos_per_million
from baobab.runtime.gateway.providers import Provider, build_own_server
from baobab.runtime.net.egress import EgressResponse
from baobab.tools.core.errors import BaobabError

PORTS: Mapping[str, int] = {"ollama": 11434, "llamacpp": 8080, "vllm": 8000, "lmstudio": 1234}
"""The ports on which local servers listen by default."""

PROBE_SECONDS = 0.25
"""The seconds that a local server has for its whole answer. A running server answers at once, from memory."""

MAX_BYTES = 4 * 2**20  # the longest known list, of a reseller of everything, has half a megabyte
MAX_MODELS = 2000
MAX_NAME = 200

# Sends a request and returns its answer, such as `Egress.request`.
Request = Callable[..., Awaitable[EgressResponse]]


class ModelListFailed(BaobabError):
    code = "MODELS_UNLISTED"
    status = 502
    summary = "The model server did not list its models."
    remediation = "Check the server's key and its address: the part before /models, which often ends in /v1."


async def probe_servers(
    own_port: int,
    ports: Mapping[str, int] = PORTS,
    *,
    declared_names: Collection[str] = (),
    seconds: float = PROBE_SECONDS,
) -> list[tuple[Provider, list[Model]]]:
    """Finds the local servers that answer, with their models. Takes at most `seconds` for all of them together.

    own_port: this server's own port, which is skipped. declared_names: the names of servers whose addresses
    the settings give, which are skipped too.
    """
    candidates = [
        build_own_server(name, f"http://127.0.0.1:{port}/v1")
        for name, port in ports.items()
        if port != own_port and name not in declared_names
    ]
    answers = await _fetch_lists(candidates, seconds)
    found_models = [
        (provider, _parse_models(provider, body)) for provider, body in zip(candidates, answers, strict=True)
    ]
    return [(provider, models) for provider, models in found_models if models]


async def fetch_models(provider: Provider, request: Request) -> list[Model]:
    """Fetches the models of a provider with a list of its own, each with the id `<provider>/<its own name>`.

    Raises ModelListFailed for an answer that is no list, and the errors of `request`.
    """
    headers = {"Authorization": f"Bearer {provider.api_key}"} if provider.api_key else {}
    answer = await request("GET", f"{provider.api_base}/models", headers=headers, max_bytes=MAX_BYTES)
    models = _parse_models(provider, answer.body) if answer.status == 200 else None
    if models is None:
        raise ModelListFailed(details={"server": provider.name, "status": answer.status})
    return models


async def _fetch_lists(providers: Collection[Provider], seconds: float) -> list[bytes]:
    """Returns each provider's answer to GET /models; empty if it is absent, slow or too long, or refuses.

    This does not use the egress client, which refuses loopback because its addresses come from users.
    """
    import aiohttp

    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=seconds),
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        # Nothing is decompressed, so the counted bytes are those in memory.
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
    ) as session:

        async def fetch_list(provider: Provider) -> bytes:
            try:
                # A redirect could lead off this machine.
                async with session.get(f"{provider.api_base}/models", allow_redirects=False) as answer:
                    return await _read_body(answer) if answer.status == 200 else b""
            except (aiohttp.ClientError, OSError, TimeoutError):
                return b""

        return list(await asyncio.gather(*map(fetch_list, providers)))


async def _read_body(answer: Any) -> bytes:
    body = b""
    async for piece in answer.content.iter_chunked(64 * 1024):
        body += piece
        if len(body) > MAX_BYTES:
            return b""
    return body


def _parse_models(provider: Provider, body: bytes) -> list[Model] | None:
    """Returns the models of an answer in the shape of OpenAI's; None if it has another."""
    if provider.is_guarded and is_heavy(body):
        return None
    try:
        answer = from_json(body, allow_inf_nan=False)
    except ValueError:
        return None
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        return None
    models = [_parse_model(provider, entry) for entry in entries[:MAX_MODELS] if isinstance(entry, dict)]
    return list({model.id: model for model in models if model is not None}.values())


def _parse_model(provider: Provider, entry: Mapping[str, Any]) -> Model | None:
    name = entry.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable() or " " in name:
        return None
    price = _parse_price(provider, name, entry.get("pricing"))
    if price is None:
        return None
    modality = guess_modality(name)
    return Model(
        id=f"{provider.name}/{name}",
        name=f"{provider.name}: {name}",
        modality=modality,
        price=price,
        context_window=_read_count(entry, "context_length", "max_model_len", "max_context_length"),
        max_output=None,
        litellm=f"openai/{name}",
        provider=provider.name,
        features=frozenset([*(["local"] if provider.is_own else []), *(["streaming"] if modality == "chat" else [])]),
    )


def guess_modality(name: str) -> Modality:
    """Guesses a model's modality from its name."""
    return "embedding" if "embed" in name.lower() else "chat"


def _parse_price(provider: Provider, name: str, pricing: object) -> Price | None:
    """Reads a price in dollars per token; None for a model that cannot be sold.

    Without a price, models of the operator's own servers cost nothing, and others are not sold. Models with a fee for
    each request are not sold, because a price by tokens cannot express it, and neither are those with a price below
    zero. Models of a customer's own server cost nothing.
    """
    if provider.is_guarded:
        return Price(0, 0)
    if not isinstance(pricing, dict):
        return Price(0, 0) if provider.is_own and pricing is None else None
    prompt, completion = to_nanos_per_million(pricing.get("prompt")), to_nanos_per_million(pricing.get("completion"))
    if prompt is None or completion is None or to_nanos(pricing.get("request", "0")) != 0:
        return None
    if prompt == 0 and not (provider.is_own or name.endswith(":free")):
        return None
    return Price(prompt, completion, to_nanos_per_million(pricing.get("input_cache_read")))


def _read_count(entry: Mapping[str, Any], *fields: str) -> int | None:
    return next((entry[field] for field in fields if type(entry.get(field)) is int and entry[field] > 0), None)
