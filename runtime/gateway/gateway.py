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
from baobab.runtime.gateway.built_in import BUILT_IN, BuiltInModels
from baobab.runtime.gateway.catalogue import OWN_KEY_MODALITIES, Catalogue
from baobab.runtime.gateway.errors import (
    ModelNotFound,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamMalformed,
)
from baobab.runtime.gateway.first_event import wait_for_first_event
from baobab.runtime.gateway.media.files import RemoteFiles
from baobab.runtime.gateway.model import Modality, Model
from baobab.runtime.gateway.naming import guess_provider
from baobab.runtime.gateway.pictures import inline_pictures
from baobab.runtime.gateway.provider_access import NO_ACCESS, ProviderAccess, build_unlisted_model
from baobab.runtime.gateway.providers import RESERVED_NAMES, Provider
from baobab.runtime.gateway.relay import Relay
from baobab.runtime.gateway.retry_timeouts import NO_TIMEOUTS, RetryTimeouts
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.upstream_router import UpstreamRouter
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires import chunks
from baobab.runtime.gateway.wires.wire import AnswerMetadata, Wire
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
        files: RemoteFiles | None = None,
    ) -> None:
        self.catalogue = catalogue
        self._vendors = {vendor.name: vendor for vendor in vendors}
        self._providers = {provider.name: provider for provider in providers}
        self._clock = clock
        self._ids = ids
        self._built_in = BuiltInModels(clock, ids)
        self._router = UpstreamRouter()
        self._relay = relay or Relay()
        self._files = files
        self.observers: list[Callable[[ModelCall], None]] = []
        """Told of every call that ended: metrics hang here."""

    async def close(self) -> None:
        await self._relay.close()
        if self._files is not None:
            await self._files.close()

    def add_provider(self, provider: Provider, models: Sequence[Model]) -> None:
        """A provider that was found later, with what it offers."""
        self._providers[provider.name] = provider
        self.catalogue.register_models(provider.name, models)

    def get_model(self, name: str, access: ProviderAccess = NO_ACCESS) -> Model:
        """The model of that name; ModelNotFound where it cannot be called here, by whoever has that reach."""
        model = self.find_model(name, access)
        if model is None:
            raise ModelNotFound(f"There is no model `{name[:200]}` here.")
        return model

    def find_model(self, name: str, access: ProviderAccess = NO_ACCESS) -> Model | None:
        """The same, None for what cannot be called. What a customer has a key for is called with it."""
        if not access:
            return self.catalogue.find_model(name)
        vendor = name.partition("/")[0]
        # First: what a customer has declared does not lead elsewhere when the installation learns of such a name.
        if (server := access.servers.get(vendor)) is not None:
            return server.find_model(name)
        deployments = self.catalogue.list_deployments(name, access.keys)
        own_provider = (
            model
            for provider in access.keys
            for model in deployments
            if model.provider == provider and provider in self._vendors and model.modality in OWN_KEY_MODALITIES
        )
        if model := next(own_provider, deployments[0] if deployments else None):
            return model
        # Fine-tunes, and what is newer than the list: whoever brings the key pays for it.
        provider = guess_provider(name)
        return (
            build_unlisted_model(vendor if "/" in name else provider, name, provider)
            if provider in access.keys and provider in self._vendors
            else None
        )

    def list_models(self, access: ProviderAccess = NO_ACCESS, modality: Modality | None = None) -> tuple[Model, ...]:
        """All that can be called by whoever has that reach, by id."""
        models = self.catalogue.list_models(modality, access.keys)
        if not access.servers:
            return models
        own_models = (model for server in access.servers.values() for model in server.models.values())
        own_provider = [model for model in own_models if modality in (None, model.modality)]
        others = [model for model in models if model.id.partition("/")[0] not in access.servers]
        return tuple(sorted((*own_provider, *others), key=lambda model: model.id))

    def find_own_provider(self, model: Model, access: ProviderAccess) -> Provider | None:
        """A customer's own way to a model that `find` gave it; None where it is called as everybody calls it."""
        server = access.servers.get(model.id.partition("/")[0])
        if server is not None and server.provider_name == model.provider:
            return server.build_provider()
        secret = access.keys.get(model.provider) if model.modality in OWN_KEY_MODALITIES else None
        known = self._vendors.get(model.provider)
        return replace(known, api_key=secret()) if known and secret else None

    @property
    def retry_timeouts(self) -> RetryTimeouts:
        """How long any call may take."""
        return self._relay.retry_timeouts

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

    def is_reserved_name(self, name: str) -> bool:
        """Whether a server of this name would be taken for somebody else."""
        return name in RESERVED_NAMES or name in self._providers or name in self.catalogue.vendors

    def is_callable(self, name: str, access: ProviderAccess = NO_ACCESS) -> bool:
        """Whether there is such a model, and somebody who serves it."""
        deployments = self.catalogue.list_deployments(name, access.keys)
        return any(model.provider in self._providers or model.provider in access.keys for model in deployments)

    async def complete_chat(
        self,
        model: Model,
        body: Mapping[str, Any],
        meter: UsageMeter,
        own_provider: Provider | None = None,
        retry_timeouts: RetryTimeouts = NO_TIMEOUTS,
    ) -> dict[str, Any]:
        """A chat completion in one piece.

        own: the customer's own way to the model, as `own` tells it. patience: less than this process has otherwise.
        """
        if model.provider == BUILT_IN:
            return await self._built_in.complete_chat(body, meter)

        async def call(upstream: Upstream) -> dict[str, Any]:
            return await self._complete_upstream(upstream, body, meter)

        async with network_wait():
            return await self._try_upstreams(model, own_provider, meter, retry_timeouts, call)

    async def stream_chat(
        self,
        model: Model,
        body: Mapping[str, Any],
        meter: UsageMeter,
        own_provider: Provider | None = None,
        retry_timeouts: RetryTimeouts = NO_TIMEOUTS,
    ) -> AsyncGenerator[bytes, None]:
        """The events of a chat completion, which has begun when this returns, or is slow to begin."""
        if model.provider == BUILT_IN:
            return await self._built_in.stream_chat(body, meter)

        async def call(upstream: Upstream) -> AsyncGenerator[bytes, None]:
            return await self._stream_upstream(upstream, body, meter)

        return await self._try_upstreams(model, own_provider, meter, retry_timeouts, call)

    async def complete_on_wire(
        self,
        wire: Wire,
        model: Model,
        body: Mapping[str, Any],
        meter: UsageMeter,
        own_provider: Provider | None = None,
        retry_timeouts: RetryTimeouts = NO_TIMEOUTS,
    ) -> dict[str, Any]:
        """The answer to a request on another wire, in one piece."""
        metadata = self._new_metadata()
        if model.provider == BUILT_IN:
            return wire.render_answer(
                await self._built_in.complete_chat(wire.build_chat_request(body, model), meter), body, metadata
            )

        async def call(upstream: Upstream) -> dict[str, Any]:
            if upstream.provider == wire.provider:
                request = wire.build_relay_request(body, model)
                return await self._relay.fetch_answer(upstream, wire.path, request, meter, wire)
            completion = await self._complete_upstream(upstream, wire.build_chat_request(body, model), meter)
            try:
                return wire.render_answer(completion, body, metadata)
            except UpstreamMalformed:
                # Nobody is given it, and nobody pays for it.
                meter.reset_counts()
                raise

        return await self._try_upstreams(model, own_provider, meter, retry_timeouts, call)

    async def stream_on_wire(
        self,
        wire: Wire,
        model: Model,
        body: Mapping[str, Any],
        meter: UsageMeter,
        own_provider: Provider | None = None,
        retry_timeouts: RetryTimeouts = NO_TIMEOUTS,
    ) -> AsyncGenerator[bytes, None]:
        """The events of the same, as those of `stream`."""
        metadata = self._new_metadata()
        if model.provider == BUILT_IN:
            pieces = await self._built_in.stream_chat(_with_usage(wire.build_chat_request(body, model)), meter)
            return wire.render_events(chunks.read_chunks(pieces), body, metadata)

        async def call(upstream: Upstream) -> AsyncGenerator[bytes, None]:
            if upstream.provider == wire.provider:
                events = await self._relay.stream_on_wire(upstream, wire, wire.build_relay_request(body, model), meter)
                return await wait_for_first_event(events, meter)
            events_read = await self._stream_upstream(
                upstream, _with_usage(wire.build_chat_request(body, model)), meter
            )
            return wire.render_events(chunks.read_chunks(events_read), body, metadata)

        return await self._try_upstreams(model, own_provider, meter, retry_timeouts, call)

    async def count_tokens(
        self,
        wire: Wire,
        model: Model,
        body: Mapping[str, Any],
        own_provider: Provider | None = None,
        retry_timeouts: RetryTimeouts = NO_TIMEOUTS,
    ) -> dict[str, Any]:
        """What a provider that speaks the wire says of a request, without answering it: nobody pays for that."""

        async def call(upstream: Upstream) -> dict[str, Any]:
            return await self._relay.fetch_answer(
                upstream, wire.path, wire.build_relay_request(body, model), UsageMeter(), wire
            )

        return await self._try_upstreams(model, own_provider, UsageMeter(), retry_timeouts, call)

    async def embed_texts(
        self,
        model: Model,
        body: Mapping[str, Any],
        meter: UsageMeter,
        own_provider: Provider | None = None,
        retry_timeouts: RetryTimeouts = NO_TIMEOUTS,
    ) -> dict[str, Any]:
        """An embedding list."""
        if model.provider == BUILT_IN:
            return await self._built_in.embed_texts(model, body, meter)

        async def call(upstream: Upstream) -> dict[str, Any]:
            if upstream.is_relayed:
                return await self._relay.fetch_answer(upstream, "/embeddings", body, meter)
            return await translate.embed_texts(upstream, body, meter)

        return await self._try_upstreams(model, own_provider, meter, retry_timeouts, call)

    async def _complete_upstream(
        self, upstream: Upstream, body: Mapping[str, Any], meter: UsageMeter
    ) -> dict[str, Any]:
        if upstream.is_relayed:
            return await self._relay.fetch_answer(upstream, "/chat/completions", body, meter)
        return await translate.complete_chat(upstream, await inline_pictures(upstream, body, self._files), meter)

    async def _stream_upstream(
        self, upstream: Upstream, body: Mapping[str, Any], meter: UsageMeter
    ) -> AsyncGenerator[bytes, None]:
        if upstream.is_relayed:
            pieces = await self._relay.stream_answer(upstream, "/chat/completions", body, meter)
        else:
            pieces = await translate.stream_chat(upstream, await inline_pictures(upstream, body, self._files), meter)
        return await wait_for_first_event(pieces, meter)

    async def _try_upstreams(
        self,
        model: Model,
        own_provider: Provider | None,
        meter: UsageMeter,
        retry_timeouts: RetryTimeouts,
        call: Callable[[Upstream], Awaitable[T]],
    ) -> T:
        """The first answer that one of the model's upstreams begins. What may have been paid is not asked again."""
        upstreams = self._list_upstreams(model, own_provider)
        bounds = self.retry_timeouts.tighten(retry_timeouts)
        if own_provider is not None:
            bounds = bounds.tighten(own_provider.retry_timeouts)
        deadline = asyncio.get_running_loop().time() + bounds.total
        tried: set[str] = set()
        last: UpstreamFailed | None = None
        for attempt in range(_MOST_TRIES):
            if own_provider is not None:
                # The router learns of this installation's own keys only, and there is nothing to choose here.
                upstream = next((one for one in upstreams if one.id not in tried), None)
            else:
                upstream = await self._router.pick_upstream(model.id, upstreams, tried)
            if upstream is None:
                break
            if attempt:
                bounds = bounds.limit_total(max(deadline - asyncio.get_running_loop().time(), 0.0))
            meter.served_model, meter.api_base = upstream.served_model, upstream.api_base
            try:
                bounded = upstream if bounds is self.retry_timeouts else replace(upstream, retry_timeouts=bounds)
                return await call(bounded)
            except UpstreamFailed as exc:
                last = exc
                self._router.record_failure(upstream, exc)
                if not exc.is_unbilled:
                    raise
                # What is busy, or does not know us, will not be otherwise at once; the rest may have been chance.
                if len(upstreams) > 1 or isinstance(exc, (UpstreamBusy, UpstreamDenied)):
                    tried.add(upstream.id)
                else:
                    await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
        raise last or ModelNotFound(f"Nobody serves `{model.id}` here.")

    def _list_upstreams(self, model: Model, own_provider: Provider | None) -> list[Upstream]:
        if own_provider is not None:
            return [_build_upstream(model, model, own_provider)]
        return [
            _get_upstream(model, served, provider)
            for served in self.catalogue.list_deployments(model.id) or (model,)
            if (provider := self._providers.get(served.provider)) is not None
        ]

    def _new_metadata(self) -> AnswerMetadata:
        return AnswerMetadata(self._ids.hex(24), int(self._clock.time()))


def _build_upstream(model: Model, served: Model, provider: Provider) -> Upstream:
    secret = provider.api_key
    return Upstream(
        id=f"{model.id} {served.provider}:{served.upstream_name} {sha256(secret.encode()).hexdigest()[:12]}",
        provider=served.provider,
        model=served.upstream_name,
        api_base=provider.api_base,
        api_key=secret,
        served_model=served,
        is_relayed=provider.wire == "openai" and "responses_only" not in served.features,
        is_guarded=provider.is_guarded,
    )


_get_upstream = lru_cache(maxsize=4096)(_build_upstream)
"""For this installation's own providers: there are few, and each call asks."""


def _with_usage(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request for a stream that tells at its end what was used."""
    return {**body, "stream": True, "stream_options": {"include_usage": True}}
