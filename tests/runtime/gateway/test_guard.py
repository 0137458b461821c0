"""Customers' own servers are called by the rules of the guarded client: each connection, whoever asks for it."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from baobab.runtime.gateway.catalogue import Catalogue
from baobab.runtime.gateway.errors import UpstreamFailed, UpstreamMalformed
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.provider_access import OwnServer, ProviderAccess
from baobab.runtime.gateway.providers import build_own_server
from baobab.runtime.gateway.relay import Relay
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.net.egress import Egress
from baobab.storage.clock import Ids
from tests.clock import FixedClock
from tests.runtime.gateway.upstream import CannedAnswer, Upstream, start_upstream

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello!"}]}
LOOPBACK = ("127.0.0.1/32",)
HOUSE_MODEL = Model("house/plain", "plain", "chat", Price(0, 0), None, None, "openai/plain", "house", frozenset())


class FakeResolver:
    """Resolves every name to the same addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: tuple[str, ...] = addresses
        self.question_count = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.question_count += 1
        return self.addresses


class Customer:
    """One with a server `lab` at an address."""

    def __init__(self, gateway: Gateway, url: str) -> None:
        self.gateway = gateway
        self.reach = ProviderAccess(servers={"lab": OwnServer("1", "lab", url)})

    async def ask(self, behaviour: str, method: str = "complete_chat") -> Any:
        model = self.gateway.get_model(f"lab/{behaviour}", self.reach)
        body = {"input": "Hello!"} if method == "embed_texts" else BODY
        answer = await getattr(self.gateway, method)(
            model, body, UsageMeter(), self.gateway.find_own_provider(model, self.reach)
        )
        return [piece async for piece in answer] if method == "stream_chat" else answer


@contextlib.asynccontextmanager
async def open_gateway(egress: Egress, **limits: Any) -> AsyncIterator[tuple[Gateway, Upstream]]:
    clock = FixedClock()
    async with start_upstream() as fake:
        gateway = Gateway(Catalogue(clock, ()), [], clock, Ids(), relay=Relay(egress, **limits))
        try:
            yield gateway, fake
        finally:
            await gateway.close()
            await egress.close()


def named_url(fake: Upstream) -> str:
    return fake.url.replace("127.0.0.1", "models.test") + "/v1"


async def test_a_name_that_leads_elsewhere_after_it_was_checked_leads_nowhere() -> None:
    names = FakeResolver("127.0.0.1")
    async with open_gateway(Egress(LOOPBACK, resolver=names)) as (gateway, fake):
        customer = Customer(gateway, named_url(fake))
        for _ in range(2):
            await customer.ask("plain")
        # One connection, for both: it was vetted when it was made.
        assert names.question_count == 1
        with pytest.raises(UpstreamFailed):
            await customer.ask("drop-first")  # after which there is no connection
        request_count = len(fake.requests)
        for rebound in (("10.0.0.7",), ("127.0.0.1", "169.254.169.254"), ("::1",)):
            names.addresses = rebound
            for method in ("complete_chat", "stream_chat", "embed_texts"):
                with pytest.raises(UpstreamFailed) as error_info:
                    await customer.ask("plain", method)
                assert "models.test" not in error_info.value.message
        assert len(fake.requests) == request_count


async def test_an_address_that_may_not_be_called_is_not() -> None:
    async with open_gateway(Egress()) as (gateway, fake):
        customer = Customer(gateway, f"{fake.url}/v1")
        for method in ("complete_chat", "stream_chat", "embed_texts"):
            with pytest.raises(UpstreamFailed):
                await customer.ask("plain", method)
        assert not fake.requests


async def test_what_the_operator_has_declared_is_called_wherever_it_is() -> None:
    async with open_gateway(Egress()) as (gateway, fake):
        gateway.add_provider(build_own_server("house", f"{fake.url}/v1"), [HOUSE_MODEL])
        # Whoever has a server or a key of its own is no exception.
        for reach in (ProviderAccess(), Customer(gateway, "http://10.0.0.7/v1").reach):
            model = gateway.get_model("house/plain", reach)
            await gateway.complete_chat(model, BODY, UsageMeter(), gateway.find_own_provider(model, reach))
        assert len(fake.requests) == 2


async def test_a_customers_server_does_not_lead_elsewhere_when_the_installation_gets_one_of_its_name() -> None:
    async with open_gateway(Egress(LOOPBACK)) as (gateway, fake):
        customer = Customer(gateway, f"{fake.url}/v1")
        async with start_upstream() as application:
            gateway.add_provider(build_own_server("lab", f"{application.url}/v1"), [])
            await customer.ask("plain")
            assert not application.requests
        assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("behaviour", "method", "limits"),
    [
        ("huge:200000", "complete_chat", {"largest": 100_000}),
        ("long:2000", "stream_chat", {"longest": 100_000}),
        ("huge:200000", "stream_chat", {"longest": 100_000}),
    ],
)
async def test_an_answer_without_end_is_broken_off(behaviour: str, method: str, limits: dict[str, int]) -> None:
    async with open_gateway(Egress(LOOPBACK), **limits) as (gateway, fake):
        with pytest.raises(UpstreamMalformed):
            await Customer(gateway, f"{fake.url}/v1").ask(behaviour, method)


async def test_a_customers_server_may_answer_eight_megabytes_in_one_piece_and_the_operators_more() -> None:
    async with open_gateway(Egress(LOOPBACK)) as (gateway, fake):
        customer = Customer(gateway, f"{fake.url}/v1")
        long = await customer.ask("huge:2000000")
        assert len(long["choices"][0]["message"]["content"]) == 2_000_000
        huge = f"huge:{8 * 2**20}"
        with pytest.raises(UpstreamMalformed):
            await customer.ask(huge)
        gateway.add_provider(
            build_own_server("house", f"{fake.url}/v1"), [replace(HOUSE_MODEL, litellm=f"openai/{huge}")]
        )
        longer = await gateway.complete_chat(gateway.get_model("house/plain"), BODY, UsageMeter())
        assert len(longer["choices"][0]["message"]["content"]) == 8 * 2**20


HEAVY = {
    "brackets": b"[" + b"[]," * 2_000_000 + b"[]]",
    "names": b"{" + b",".join(b'"%x":0' % number for number in range(400_000)) + b"}",
    "texts": b"[" + b'"",' * 1_500_000 + b'""]',
    "digits": b"[" + (b"9" * 4000 + b",") * 500 + b"0]",
    "escapes": b'"' + b"\\n" * 2_200_000 + b'"',
}
LIGHT = {
    "a text": b'"' + "Grüße, und \\u00fc. ".encode() * 100_000 + b'"',
    "vectors": b"[" + b"-0.0123456789," * 400_000 + b"0.5]",
    "a number in a text": b'"' + b"3141592653589793" * 100 + b'"',
}


def build_answer(further: bytes) -> CannedAnswer:
    return CannedAnswer(b'{"choices": [{"message": {"content": "Hello!"}}], "further": ' + further + b"}")


@pytest.mark.parametrize("heavy", list(HEAVY))
async def test_an_answer_that_is_made_to_take_time_is_none(heavy: str) -> None:
    async with open_gateway(Egress(LOOPBACK)) as (gateway, fake):
        fake.canned_answers[""] = build_answer(HEAVY[heavy])
        assert len(fake.canned_answers[""].body) < 8 * 2**20
        with pytest.raises(UpstreamMalformed):
            await Customer(gateway, f"{fake.url}/v1").ask("said")
        gateway.add_provider(build_own_server("house", f"{fake.url}/v1"), [replace(HOUSE_MODEL, litellm="openai/said")])
        assert (await gateway.complete_chat(gateway.get_model("house/plain"), BODY, UsageMeter()))["further"]


@pytest.mark.parametrize("light", list(LIGHT))
async def test_an_honest_answer_of_megabytes_is_one(light: str) -> None:
    async with open_gateway(Egress(LOOPBACK)) as (gateway, fake):
        fake.canned_answers[""] = build_answer(LIGHT[light])
        assert (await Customer(gateway, f"{fake.url}/v1").ask("said"))["further"]


@pytest.mark.parametrize(("size", "passes"), [(200_000, True), (300_000, False)])
async def test_an_event_of_a_customers_server_has_a_bound(size: int, *, passes: bool) -> None:
    async with open_gateway(Egress(LOOPBACK)) as (gateway, fake):
        event = b'data: {"choices": [{"delta": {"content": "' + b"x" * size + b'"}}]}\n\n'
        fake.canned_answers[""] = CannedAnswer(event + b"data: [DONE]\n\n")
        with contextlib.nullcontext() if passes else pytest.raises(UpstreamMalformed):
            assert event in await Customer(gateway, f"{fake.url}/v1").ask("said", "stream_chat")
        gateway.add_provider(build_own_server("house", f"{fake.url}/v1"), [replace(HOUSE_MODEL, litellm="openai/said")])
        stream = await gateway.stream_chat(gateway.get_model("house/plain"), BODY, UsageMeter())
        assert await anext(stream) == event
        await stream.aclose()


async def test_a_redirect_is_not_followed() -> None:
    async with open_gateway(Egress(LOOPBACK)) as (gateway, fake):
        for method in ("complete_chat", "stream_chat", "embed_texts"):
            with pytest.raises(UpstreamFailed):
                await Customer(gateway, f"{fake.url}/v1").ask("redirect", method)
        assert {request.path for request in fake.requests} == {"/v1/chat/completions", "/v1/embeddings"}
