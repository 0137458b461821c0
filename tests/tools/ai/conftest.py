"""An installation whose provider of models is a fake one on loopback, behind a real socket and in this process."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
import uvicorn

from baobab.http.protocol import GuardedProtocol
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Modality, Model, Price
from baobab.runtime.gateway.providers import Provider, build_own_server
from baobab.server import Server
from baobab.settings import load_settings
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.ledger.terms import Balance
from baobab.tools.core.limits.credits import UsageLine
from tests.backends import prepare_data, release_data
from tests.conftest import ADDRESS, KEY, Baobab
from tests.people import get_first_organisation
from tests.runtime.gateway.upstream import Upstream, start_upstream

VENDOR_KEY = "sk-vendor-0123456789"
LAB_KEY = "lab-key-0123456789"
OTHER_KEY = "sk-ant-0123456789"
TIMEOUT_SECONDS = 180
MINI = "openai/gpt-4o-mini"
HELLO: list[Any] = [{"role": "user", "content": "Hello!"}]
TEXT = "Hello from the upstream, Grüße!"
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
# One token of the prompt costs 150 nano-dollars, a cached one 75, one of the answer 600: what gpt-4o-mini does.
PRICE = Price(prompt=150_000_000, completion=600_000_000, cached=75_000_000)


@dataclass
class Installation(Baobab):
    """fake: who answers for OpenAI, and for `lab`, a server of the operator's whose models cost PRICE."""

    fake: Upstream = field(default_factory=Upstream)
    address: str = ADDRESS
    data: Path = Path()
    _added_models: dict[str, list[Model]] = field(default_factory=dict)

    @property
    def credits(self) -> Credits:
        return self.application.services.part(Credits)

    def add_model(
        self,
        behaviour: str,
        *,
        id: str = "",  # noqa: A002 - what it is called everywhere
        server: str = "lab",
        url: str = "",
        modality: Modality = "chat",
    ) -> str:
        """Sell a model that behaves so; its id. server, url: another server's name, and where it is."""
        model = Model(
            id=id or f"{server}/{behaviour}",
            name=behaviour,
            modality=modality,
            price=PRICE,
            context_window=8192,
            max_output=1024,
            litellm=f"{server}/{behaviour}",
            provider=server,
            features=frozenset(("streaming", "tools")),
        )
        models = self._added_models.setdefault(server, [])
        if model not in models:
            models.append(model)
            provider = build_own_server(server, f"{url or self.fake.url}/v1", LAB_KEY)
            self.application.services.part(Gateway).add_provider(provider, models)
        return model.id

    async def chat(self, model: str | None = MINI, *, by: Any = None, path: str = "/v1", **body: Any) -> httpx.Response:
        request_body = {"messages": HELLO, **({} if model is None else {"model": model}), **body}
        return await self.client.post(f"{path}/chat/completions", json=request_body, headers=by or self.owner)

    async def stream_events(self, model: str = MINI, **body: Any) -> list[Any]:
        """Yields the data of a stream's events, in order; "[DONE]" for the end."""
        answer = await self.chat(model, stream=True, **body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/event-stream"
        return parse_events(answer.text)

    async def get_balance(self) -> Balance:
        """Returns the balance of the first organisation."""
        return await self.credits.balance(await get_first_organisation(self))

    async def get_settled_balance(self) -> Balance:
        """The same when nothing is under way any more."""
        # Asked once: a caller who asks too often is refused.
        organisation = await get_first_organisation(self)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (balance := await self.credits.balance(organisation)).reserved_nanos:
                await asyncio.sleep(0.01)
        return balance

    async def list_usage(self, **of: Any) -> list[UsageLine]:
        await self.get_settled_balance()
        today = self.application.services.clock.now().date()
        return await self.credits.usage(await get_first_organisation(self), today, today, **of)

    async def get_spent(self) -> int:
        """Nano-dollars that were charged."""
        return sum(usage.cost for usage in await self.list_usage() if not usage.byok)

    def build_client(self, **options: Any) -> openai.AsyncOpenAI:
        """OpenAI's own client, with nothing told but where and who."""
        http = options.pop("http_client", None) or httpx.AsyncClient(trust_env=False)
        settings = {"base_url": f"{self.address}/v1", "api_key": self.key, "http_client": http, **options}
        return openai.AsyncOpenAI(**settings)


async def add_translated_model(world: Installation, behaviour: str, vendor: str = "anthropic") -> str:
    """A model of the translated vendor that behaves so."""
    gateway = world.application.services.part(Gateway)
    base_model = gateway.catalogue.find_model("anthropic/claude-haiku-4.5")
    assert base_model is not None
    model = replace(base_model, id=f"{vendor}-translated/{behaviour}", litellm=f"{vendor}/{behaviour}", provider=vendor)
    if vendor == "anthropic":
        gateway.catalogue.register_models(f"translated {behaviour}", [model])
    else:
        gateway.add_provider(Provider(vendor, world.fake.url, OTHER_KEY, "translated"), [model])
    return model.id


def parse_events(text: str) -> list[Any]:
    """The data of each event of a stream; comments have none."""
    lines = [line for line in text.splitlines() if line.startswith("data:")]
    parts = [line.removeprefix("data:").strip() for line in lines]
    return [part if part == "[DONE]" else json.loads(part) for part in parts]


def join_content(events: Sequence[Any]) -> str:
    chunks = [event for event in events if event != "[DONE]"]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", ()))


@contextlib.asynccontextmanager
async def serve_app(app: Any) -> AsyncIterator[str]:
    """The address of an application that is served as ours is, in this process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        options: dict[str, Any] = {"http": GuardedProtocol, "lifespan": "off", "log_config": None, "access_log": False}
        server = _QuietServer(uvicorn.Config(app, **options, timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.001)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


class _QuietServer(uvicorn.Server):
    """Leaves the signals of the process to pytest."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@contextlib.asynccontextmanager
async def open_installation(data: Path, variables: dict[str, str], **further: str) -> AsyncIterator[Installation]:
    """further: variables of more providers, whose values may name the fake's address as {url}."""
    async with start_upstream() as fake:
        provider_settings = {name: value.format(url=fake.url) for name, value in further.items()}
        environment = {"OPENAI_API_KEY": VENDOR_KEY, "OPENAI_BASE_URL": f"{fake.url}/v1", **provider_settings}
        fixed_settings = {"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_AI_PROBE": "false"}
        settings = load_settings({**variables, **prepare_data(data), **fixed_settings}, data=data)
        server = Server(settings, environment=environment)
        async with server.open() as application, serve_app(server.rest_app) as address:
            transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
                yield Installation(application, client, fake=fake, address=address, data=data)
    release_data(data)


@pytest.fixture
async def baobab(tmp_path: Path, settings: dict[str, str]) -> AsyncIterator[Installation]:
    async with open_installation(tmp_path / "data", settings) as installation:
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    """The same for a whole module, with no bound to what is spent."""
    further = {"ANTHROPIC_API_KEY": OTHER_KEY, "ANTHROPIC_BASE_URL": "{url}"}
    async with open_installation(
        tmp_path_factory.mktemp("world") / "data", {"BAOBAB_PLAN": "enterprise"}, **further
    ) as one:
        yield one
