"""The gateway: a call to a model, from its request to its answer, by whichever lane leads to it.

Three lanes: the built-in models; the relay of bytes to providers of the OpenAI wire; LiteLLM's translation for all
others. What was not sent, or was refused before any work, is tried again, elsewhere where there is an elsewhere.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

from baobab.runtime.gateway import translate
from baobab.runtime.gateway.beginning import begun
from baobab.runtime.gateway.built_in import BUILT_IN, BuiltIn
from baobab.runtime.gateway.catalogue import OF_OWN_KEYS, Catalogue
from baobab.runtime.gateway.errors import (
    ModelNotFound,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamMalformed,
)
from baobab.runtime.gateway.media.files import Files
from baobab.runtime.gateway.model import Modality, Model
from baobab.runtime.gateway.naming import provider_of
from baobab.runtime.gateway.outcome import Outcome
from baobab.runtime.gateway.patience import NO_BOUNDS, Patience
from baobab.runtime.gateway.pictures import shown
from baobab.runtime.gateway.providers import TAKEN, Provider
from baobab.runtime.gateway.reach import NOTHING, Reach, unlisted
from baobab.runtime.gateway.relay import Relay
from baobab.runtime.gateway.routes import Routes
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.wires import chunks
from baobab.runtime.gateway.wires.wire import Made, Wire
from baobab.runtime.job_slots import network_wait
from baobab.storage.clock import Clock, Ids

T = TypeVar("T")

_MOST_TRIES = 3
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call to a model that has ended, for those who count.

    model: its name in the books; all that a customer's own server or key alone reaches share one. payer: `platform`,
    `own_key` or `own_server`. code: what it failed with, empty where it did not. prompt, cached, completion: tokens.
    cost: nano-dollars, of whoever pays.
    """

    model: str
    payer: str
    code: str
    seconds: float
    prompt: int
    cached: int
    completion: int
    cost: int


class Gateway:
    """One for each process. `catalogue` lists what can be called; `providers` are those who can be called for it.

    vendors: those whom customers may call with keys of their own, without a key.
    relay: with other limits than the usual ones. files: who fetches the pictures that requests point at.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        providers: Sequence[Provider],
        clock: Clock,
        ids: Ids,
        *,
        vendors: Sequence[Provider] = (),
        relay: Relay | None = None,
        files: Files | None = None,
    ) -> None:
        self.catalogue = catalogue
        self._vendors = {vendor.name: vendor for vendor in vendors}
        self._providers = {provider.name: provider for provider in providers}
        self._clock = clock
        self._ids = ids
        self._built_in = BuiltIn(clock, ids)
        self._routes = Routes()
        self._relay = relay or Relay()
        self._files = files
        self.observers: list[Callable[[ModelCall], None]] = []
        """Told of every call that ended: metrics hang here."""

    async def close(self) -> None:
        await self._relay.close()
        if self._files is not None:
            await self._files.close()

    def add(self, provider: Provider, models: Sequence[Model]) -> None:
        """A provider that was found later, with what it offers."""
        self._providers[provider.name] = provider
        self.catalogue.offer(provider.name, models)

    def find(self, name: str, reach: Reach = NOTHING) -> Model:
        """The model of that name; ModelNotFound where it cannot be called here, by whoever has that reach."""
        model = self.look(name, reach)
        if model is None:
            raise ModelNotFound(f"There is no model `{name[:200]}` here.")
        return model

    def look(self, name: str, reach: Reach = NOTHING) -> Model | None:
        """The same, None for what cannot be called. What a customer has a key for is called with it."""
        if not reach:
            return self.catalogue.find(name)
        vendor = name.partition("/")[0]
        # First: what a customer has declared does not lead elsewhere when the installation learns of such a name.
        if (server := reach.servers.get(vendor)) is not None:
            return server.find(name)
        found = self.catalogue.deployments(name, reach.keys)
        own = (
            model
            for provider in reach.keys
            for model in found
            if model.provider == provider and provider in self._vendors and model.modality in OF_OWN_KEYS
        )
        if model := next(own, found[0] if found else None):
            return model
        # Fine-tunes, and what is newer than the list: whoever brings the key pays for it.
        provider = provider_of(name)
        return (
            unlisted(vendor if "/" in name else provider, name, provider)
            if provider in reach.keys and provider in self._vendors
            else None
        )

    def models(self, reach: Reach = NOTHING, modality: Modality | None = None) -> tuple[Model, ...]:
        """All that can be called by whoever has that reach, by id."""
        models = self.catalogue.models(modality, reach.keys)
        if not reach.servers:
            return models
        listed = (model for server in reach.servers.values() for model in server.models.values())
        own = [model for model in listed if modality in (None, model.modality)]
        others = [model for model in models if model.id.partition("/")[0] not in reach.servers]
        return tuple(sorted((*own, *others), key=lambda model: model.id))

    def own(self, model: Model, reach: Reach) -> Provider | None:
        """A customer's own way to a model that `find` gave it; None where it is called as everybody calls it."""
        server = reach.servers.get(model.id.partition("/")[0])
        if server is not None and server.provider_name == model.provider:
            return server.provider()
        secret = reach.keys.get(model.provider) if model.modality in OF_OWN_KEYS else None
        known = self._vendors.get(model.provider)
        return replace(known, api_key=secret()) if known and secret else None

    @property
    def patience(self) -> Patience:
        """How long any call may take."""
        return self._relay.patience

    @property
    def providers(self) -> tuple[str, ...]:
        """The names of those who can be called."""
        return tuple(self._providers)

    @property
    def key_providers(self) -> tuple[str, ...]:
        """The names of those whom a customer's own key can be for: vendors, and no server of the operator's.

        A server that looks at no keys would give its work away, for what is called with a key of one's own is free.
        """
        return tuple(sorted(self._vendors))

    def takes(self, name: str) -> bool:
        """Whether a server of this name would be taken for somebody else."""
        return name in TAKEN or name in self._providers or name in self.catalogue.vendors

    def callable(self, name: str, reach: Reach = NOTHING) -> bool:
        """Whether there is such a model, and somebody who serves it."""
        found = self.catalogue.deployments(name, reach.keys)
        return any(model.provider in self._providers or model.provider in reach.keys for model in found)

    async def chat(
        self,
        model: Model,
        body: Mapping[str, Any],
        outcome: Outcome,
        own: Provider | None = None,
        patience: Patience = NO_BOUNDS,
    ) -> dict[str, Any]:
        """A chat completion in one piece.

        own: the customer's own way to the model, as `own` tells it. patience: less than this process has otherwise.
        """
        if model.provider == BUILT_IN:
            return await self._built_in.chat(body, outcome)

        async def call(upstream: Upstream) -> dict[str, Any]:
            return await self._completed(upstream, body, outcome)

        async with network_wait():
            return await self._through(model, own, outcome, patience, call)

    async def stream(
        self,
        model: Model,
        body: Mapping[str, Any],
        outcome: Outcome,
        own: Provider | None = None,
        patience: Patience = NO_BOUNDS,
    ) -> AsyncGenerator[bytes, None]:
        """The events of a chat completion, which has begun when this returns, or is slow to begin."""
        if model.provider == BUILT_IN:
            return await self._built_in.stream(body, outcome)

        async def call(upstream: Upstream) -> AsyncGenerator[bytes, None]:
            return await self._completing(upstream, body, outcome)

        return await self._through(model, own, outcome, patience, call)

    async def speak(
        self,
        wire: Wire,
        model: Model,
        body: Mapping[str, Any],
        outcome: Outcome,
        own: Provider | None = None,
        patience: Patience = NO_BOUNDS,
    ) -> dict[str, Any]:
        """The answer to a request on another wire, in one piece."""
        made = self._made()
        if model.provider == BUILT_IN:
            return wire.answered(await self._built_in.chat(wire.asked(body, model), outcome), body, made)

        async def call(upstream: Upstream) -> dict[str, Any]:
            if upstream.provider == wire.provider:
                asked = wire.relayed(body, model)
                return await self._relay.whole(upstream, wire.path, asked, outcome, wire)
            completion = await self._completed(upstream, wire.asked(body, model), outcome)
            try:
                return wire.answered(completion, body, made)
            except UpstreamMalformed:
                # Nobody is given it, and nobody pays for it.
                outcome.forget()
                raise

        return await self._through(model, own, outcome, patience, call)

    async def speaking(
        self,
        wire: Wire,
        model: Model,
        body: Mapping[str, Any],
        outcome: Outcome,
        own: Provider | None = None,
        patience: Patience = NO_BOUNDS,
    ) -> AsyncGenerator[bytes, None]:
        """The events of the same, as those of `stream`."""
        made = self._made()
        if model.provider == BUILT_IN:
            pieces = await self._built_in.stream(_metered(wire.asked(body, model)), outcome)
            return wire.telling(chunks.read(pieces), body, made)

        async def call(upstream: Upstream) -> AsyncGenerator[bytes, None]:
            if upstream.provider == wire.provider:
                heard = await self._relay.spoken(upstream, wire, wire.relayed(body, model), outcome)
                return await begun(heard, outcome)
            told = await self._completing(upstream, _metered(wire.asked(body, model)), outcome)
            return wire.telling(chunks.read(told), body, made)

        return await self._through(model, own, outcome, patience, call)

    async def count(
        self,
        wire: Wire,
        model: Model,
        body: Mapping[str, Any],
        own: Provider | None = None,
        patience: Patience = NO_BOUNDS,
    ) -> dict[str, Any]:
        """What a provider that speaks the wire says of a request, without answering it: nobody pays for that."""

        async def call(upstream: Upstream) -> dict[str, Any]:
            return await self._relay.whole(upstream, wire.path, wire.relayed(body, model), Outcome(), wire)

        return await self._through(model, own, Outcome(), patience, call)

    async def embed(
        self,
        model: Model,
        body: Mapping[str, Any],
        outcome: Outcome,
        own: Provider | None = None,
        patience: Patience = NO_BOUNDS,
    ) -> dict[str, Any]:
        """An embedding list."""
        if model.provider == BUILT_IN:
            return await self._built_in.embed(model, body, outcome)

        async def call(upstream: Upstream) -> dict[str, Any]:
            if upstream.relayed:
                return await self._relay.whole(upstream, "/embeddings", body, outcome)
            return await translate.embedding(upstream, body, outcome)

        return await self._through(model, own, outcome, patience, call)

    async def _completed(self, upstream: Upstream, body: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
        if upstream.relayed:
            return await self._relay.whole(upstream, "/chat/completions", body, outcome)
        return await translate.whole(upstream, await shown(upstream, body, self._files), outcome)

    async def _completing(
        self, upstream: Upstream, body: Mapping[str, Any], outcome: Outcome
    ) -> AsyncGenerator[bytes, None]:
        if upstream.relayed:
            pieces = await self._relay.stream(upstream, "/chat/completions", body, outcome)
        else:
            pieces = await translate.stream(upstream, await shown(upstream, body, self._files), outcome)
        return await begun(pieces, outcome)

    async def _through(
        self,
        model: Model,
        own: Provider | None,
        outcome: Outcome,
        patience: Patience,
        call: Callable[[Upstream], Awaitable[T]],
    ) -> T:
        """The first answer that one of the model's upstreams begins. What may have been paid is not asked again."""
        upstreams = self._upstreams(model, own)
        bounds = self.patience.within(patience)
        if own is not None:
            bounds = bounds.within(own.patience)
        ends = asyncio.get_running_loop().time() + bounds.total
        tried: set[str] = set()
        last: UpstreamFailed | None = None
        for attempt in range(_MOST_TRIES):
            if own is not None:
                # The router learns of this installation's own keys only, and there is nothing to choose here.
                upstream = next((one for one in upstreams if one.id not in tried), None)
            else:
                upstream = await self._routes.pick(model.id, upstreams, tried)
            if upstream is None:
                break
            if attempt:
                bounds = bounds.limited_to(max(ends - asyncio.get_running_loop().time(), 0.0))
            outcome.served, outcome.address = upstream.served, upstream.api_base
            try:
                return await call(upstream if bounds is self.patience else replace(upstream, patience=bounds))
            except UpstreamFailed as exc:
                last = exc
                self._routes.failed(upstream, exc)
                if not exc.was_for_nothing:
                    raise
                # What is busy, or does not know us, will not be otherwise at once; the rest may have been chance.
                if len(upstreams) > 1 or isinstance(exc, (UpstreamBusy, UpstreamDenied)):
                    tried.add(upstream.id)
                else:
                    await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
        raise last or ModelNotFound(f"Nobody serves `{model.id}` here.")

    def _upstreams(self, model: Model, own: Provider | None) -> list[Upstream]:
        if own is not None:
            return [_upstream(model, model, own)]
        return [
            _known_upstream(model, served, provider)
            for served in self.catalogue.deployments(model.id) or (model,)
            if (provider := self._providers.get(served.provider)) is not None
        ]

    def _made(self) -> Made:
        return Made(self._ids.hex(24), int(self._clock.time()))


def _upstream(model: Model, served: Model, provider: Provider) -> Upstream:
    secret = provider.api_key
    return Upstream(
        id=f"{model.id} {served.provider}:{served.upstream} {sha256(secret.encode()).hexdigest()[:12]}",
        provider=served.provider,
        model=served.upstream,
        api_base=provider.api_base,
        api_key=secret,
        served=served,
        relayed=provider.wire == "openai" and "responses_only" not in served.features,
        guarded=provider.guarded,
    )


_known_upstream = lru_cache(maxsize=4096)(_upstream)
"""For this installation's own providers: there are few, and each call asks."""


def _metered(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request for a stream that tells at its end what was used."""
    return {**body, "stream": True, "stream_options": {"include_usage": True}}
