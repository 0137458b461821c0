"""The gateway calls a model and returns its answer.

A call takes one of three paths: the built-in models, the relay of bytes to providers that speak OpenAI's wire format,
or LiteLLM's translation for all others. A request that was not sent, or was refused before any work was done, is tried
again, with another upstream if the model has one.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

from baobab.runtime.gateway import translate
from baobab.runtime.gateway.built_in import BUILT_IN, BuiltInModels
from baobab.runtime.gateway.catalogue import OWN_KEY_MODALITIES, Catalogue
from baobab.runtime.gateway.completion_events import CompletionAssembler
from baobab.runtime.gateway.errors import (
    ModelNotFound,
    RequestRefused,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamMalformed,
)
from baobab.runtime.gateway.events import LARGEST
from baobab.runtime.gateway.first_event import wait_for_first_event
from baobab.runtime.gateway.media.files import RemoteFiles
from baobab.runtime.gateway.mended_answers import mend_completion, mend_events
from baobab.runtime.gateway.model import Modality, Model
from baobab.runtime.gateway.naming import guess_provider
from baobab.runtime.gateway.pictures import inline_pictures
from baobab.runtime.gateway.provider_access import NO_ACCESS, ProviderAccess, build_unlisted_model
from baobab.runtime.gateway.providers import RESERVED_NAMES, Provider
from baobab.runtime.gateway.reasoning import change_refused_reasoning, fit_reasoning, mark_origin, name_origin
from baobab.runtime.gateway.relay import Relay
from baobab.runtime.gateway.retry_timeouts import NO_TIMEOUTS, RetryTimeouts
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.upstream_router import UpstreamRouter
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires import chunks
from baobab.runtime.gateway.wires.history import place_results
from baobab.runtime.gateway.wires.wire import AnswerMetadata, Wire
from baobab.runtime.jobs.job_slots import network_wait
from baobab.runtime.net.egress import always_open
from baobab.storage.clock import Clock, Ids

T = TypeVar("T")

FollowText = Callable[[str | None], None]
"""Receives the text of an answer in pieces; None where the answer begins, perhaps anew with another model."""

_MOST_TRIES = 3
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One finished call to a model, as the gateway's observers receive it.

    model: its name in the usage records; all models that only a customer's own server or key reaches share one name.
    payer: `platform`, `own_key` or `own_server`. code: the error code, empty for a success. prompt, cached,
    completion: tokens. cost: nano-dollars, whoever pays them.
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
    """Calls models; each process has one.

    catalogue: lists the models that can be called. providers: the providers that this installation can call.
    vendors: the providers that customers may call with keys of their own; these have no key here.
    relay: a relay with other limits than the default ones. files: fetches the pictures that requests refer to by URL.
    require_open: raises what forbids calls of providers now; the built-in models can always be called.
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
        require_open: Callable[[], None] = always_open,
    ) -> None:
        self.catalogue = catalogue
        self._require_open = require_open
        self._vendors = {vendor.name: vendor for vendor in vendors}
        self._providers = {provider.name: provider for provider in providers}
        self._clock = clock
        self._ids = ids
        self._built_in = BuiltInModels(clock, ids)
        self._router = UpstreamRouter()
        self._relay = relay or Relay()
        self._files = files
        self.observers: list[Callable[[ModelCall], None]] = []
        """Functions that are called after every call to a model; metrics are one of them."""

    async def close(self) -> None:
        await self._relay.close()
        if self._files is not None:
            await self._files.close()

    def add_provider(self, provider: Provider, models: Sequence[Model]) -> None:
        """Adds a provider that was found after the start, with its models."""
        self._providers[provider.name] = provider
        self.catalogue.register_models(provider.name, models)

    def get_model(self, name: str, access: ProviderAccess = NO_ACCESS) -> Model:
        """Returns the model of that name; raises ModelNotFound if it cannot be called with that access."""
        model = self.find_model(name, access)
        if model is None:
            raise ModelNotFound(f"There is no model `{name[:200]}` here.")
        return model

    def find_model(self, name: str, access: ProviderAccess = NO_ACCESS) -> Model | None:
        """Returns the model of that name, or None if it cannot be called with that access.

        A provider for which the customer has a key comes before the installation's own.
        """
        if not access:
            return self.catalogue.find_model(name)
        vendor = name.partition("/")[0]
        # First, so that a customer's server keeps its name even if the installation later gets a provider of that name.
        if (server := access.servers.get(vendor)) is not None:
            return server.find_model(name)
        deployments = self.catalogue.list_deployments(name, access.keys)
        own_deployments = (
            model
            for provider in access.keys
            for model in deployments
            if model.provider == provider and provider in self._vendors and model.modality in OWN_KEY_MODALITIES
        )
        if model := next(own_deployments, deployments[0] if deployments else None):
            return model
        # Fine-tuned models, and models newer than the list: the owner of the key pays for them.
        provider = guess_provider(name)
        return (
            build_unlisted_model(vendor if "/" in name else provider, name, provider)
            if provider in access.keys and provider in self._vendors
            else None
        )

    def list_models(self, access: ProviderAccess = NO_ACCESS, modality: Modality | None = None) -> tuple[Model, ...]:
        """Returns all models that can be called with that access, sorted by id."""
        models = self.catalogue.list_models(modality, access.keys)
        if not access.servers:
            return models
        own_models = (model for server in access.servers.values() for model in server.models.values())
        selected_models = [model for model in own_models if modality in (None, model.modality)]
        other_models = [model for model in models if model.id.partition("/")[0] not in access.servers]
        return tuple(sorted((*selected_models, *other_models), key=lambda model: model.id))

    def find_own_provider(self, model: Model, access: ProviderAccess) -> Provider | None:
        """Returns the customer's own provider for a model that `find_model` returned.

        None if the model is called with the installation's key.
        """
        server = access.servers.get(model.id.partition("/")[0])
        if server is not None and server.provider_name == model.provider:
            return server.build_provider()
        secret = access.keys.get(model.provider) if model.modality in OWN_KEY_MODALITIES else None
        vendor = self._vendors.get(model.provider)
        return replace(vendor, api_key=secret()) if vendor and secret else None

    @property
    def retry_timeouts(self) -> RetryTimeouts:
        """The bounds on the time of any call."""
        return self._relay.retry_timeouts

    @property
    def providers(self) -> tuple[str, ...]:
        """The names of the providers that this installation can call."""
        return tuple(self._providers)

    @property
    def key_providers(self) -> tuple[str, ...]:
        """The names of the providers that a customer may set a key for: vendors, but none of the operator's servers.

        Calls with a customer's own key are free, so a server that checks no keys would work for nothing.
        """
        return tuple(sorted(self._vendors))

    def is_reserved_name(self, name: str) -> bool:
        """Returns whether a server must not have this name because a vendor or a provider has it."""
        return name in RESERVED_NAMES or name in self._providers or name in self.catalogue.vendors

    def is_callable(self, name: str, access: ProviderAccess = NO_ACCESS) -> bool:
        """Returns whether there is such a model and a provider that serves it."""
        deployments = self.catalogue.list_deployments(name, access.keys)
        return any(model.provider in self._providers or model.provider in access.keys for model in deployments)

    async def complete_chat(
        self,
        model: Model,
        body: Mapping[str, Any],
        meter: UsageMeter,
        own_provider: Provider | None = None,
        retry_timeouts: RetryTimeouts = NO_TIMEOUTS,
        follow_text: FollowText | None = None,
    ) -> dict[str, Any]:
        """Returns a chat completion in one piece.

        own_provider: the customer's own provider of the model, from `find_own_provider`. retry_timeouts: bounds that
        are tighter than those of this process. follow_text: receives the answer's text as it arrives; the answer then
        names the origin of its reasoning, for those who send it back.
        """
        if model.provider == BUILT_IN:
            answer = await self._built_in.complete_chat(body, meter)
            _tell_text(answer, follow_text)
            return answer
        if follow_text is not None:
            try:
                async with network_wait():
                    events = await self.stream_chat(model, _with_usage(body), meter, own_provider, retry_timeouts)
                    completion = await _assemble_completion(events, meter, follow_text)
                    mark_origin(completion, meter.served_model)
                    return completion
            except RequestRefused:
                # Perhaps only the stream is refused: some vendors let only accounts that they have verified stream.
                if meter.has_begun:
                    raise

        async def call(upstream: Upstream) -> dict[str, Any]:
            return await self._complete_upstream(upstream, body, meter)

        async with network_wait():
            answer = await self._try_upstreams(model, own_provider, meter, retry_timeouts, call)
        _tell_text(answer, follow_text)
        if follow_text is not None:
            mark_origin(answer, meter.served_model)
        return answer

    async def stream_chat(
        self,
        model: Model,
        body: Mapping[str, Any],
        meter: UsageMeter,
        own_provider: Provider | None = None,
        retry_timeouts: RetryTimeouts = NO_TIMEOUTS,
    ) -> AsyncGenerator[bytes, None]:
        """Returns the events of a chat completion. It has begun when this returns, unless it is slow to begin."""
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
        """Returns the answer to a request in another wire format, in one piece."""
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
                return wire.render_answer(completion, body, _with_origin(metadata, upstream))
            except UpstreamMalformed:
                # Nobody receives this answer, so nobody pays for it.
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
        """Returns the events of an answer in another wire format, under the same terms as `stream_chat`."""
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
            return wire.render_events(chunks.read_chunks(events_read), body, _with_origin(metadata, upstream))

        return await self._try_upstreams(model, own_provider, meter, retry_timeouts, call)

    async def count_tokens(
        self,
        wire: Wire,
        model: Model,
        body: Mapping[str, Any],
        own_provider: Provider | None = None,
        retry_timeouts: RetryTimeouts = NO_TIMEOUTS,
    ) -> dict[str, Any]:
        """Returns a provider's count of the tokens of a request in its wire format. This costs nothing."""

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
        """Returns a list of embeddings."""
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
        async def send(request: Mapping[str, Any]) -> dict[str, Any]:
            if upstream.is_relayed:
                return await self._relay.fetch_answer(upstream, "/chat/completions", request, meter)
            return await translate.complete_chat(upstream, await inline_pictures(upstream, request, self._files), meter)

        return mend_completion(await _send_history(upstream, body, send))

    async def _stream_upstream(
        self, upstream: Upstream, body: Mapping[str, Any], meter: UsageMeter
    ) -> AsyncGenerator[bytes, None]:
        async def send(request: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
            if upstream.is_relayed:
                return await self._relay.stream_answer(upstream, "/chat/completions", request, meter)
            return await translate.stream_chat(upstream, await inline_pictures(upstream, request, self._files), meter)

        return await wait_for_first_event(mend_events(await _send_history(upstream, body, send)), meter)

    async def _try_upstreams(
        self,
        model: Model,
        own_provider: Provider | None,
        meter: UsageMeter,
        retry_timeouts: RetryTimeouts,
        call: Callable[[Upstream], Awaitable[T]],
    ) -> T:
        """Returns the first answer that one of the model's upstreams begins.

        A request that may already have been billed is not sent again.
        """
        self._require_open()
        upstreams = self._list_upstreams(model, own_provider)
        bounds = self.retry_timeouts.tighten(retry_timeouts)
        if own_provider is not None:
            bounds = bounds.tighten(own_provider.retry_timeouts)
        deadline = asyncio.get_running_loop().time() + bounds.total
        tried_upstreams: set[str] = set()
        last_error: UpstreamFailed | None = None
        for attempt in range(_MOST_TRIES):
            if own_provider is not None:
                # The router knows only this installation's keys, and a customer's own provider leaves no choice.
                upstream = next((candidate for candidate in upstreams if candidate.id not in tried_upstreams), None)
            else:
                upstream = await self._router.pick_upstream(model.id, upstreams, tried_upstreams)
            if upstream is None:
                break
            if attempt:
                bounds = bounds.limit_total(max(deadline - asyncio.get_running_loop().time(), 0.0))
            meter.served_model, meter.api_base = upstream.served_model, upstream.api_base
            try:
                bounded_upstream = (
                    upstream if bounds is self.retry_timeouts else replace(upstream, retry_timeouts=bounds)
                )
                return await call(bounded_upstream)
            except UpstreamFailed as exc:
                last_error = exc
                self._router.record_failure(upstream, exc)
                if not exc.is_unbilled:
                    raise
                # A busy upstream, or one that rejects our key, will not recover at once; other failures may be chance.
                if len(upstreams) > 1 or isinstance(exc, (UpstreamBusy, UpstreamDenied)):
                    tried_upstreams.add(upstream.id)
                else:
                    await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
        raise last_error or ModelNotFound(f"No provider here serves `{model.id}`.")

    def _list_upstreams(self, model: Model, own_provider: Provider | None) -> list[Upstream]:
        if own_provider is not None:
            return [_build_upstream(model, model, own_provider)]
        return [
            _get_upstream(model, served_model, provider)
            for served_model in self.catalogue.list_deployments(model.id) or (model,)
            if (provider := self._providers.get(served_model.provider)) is not None
        ]

    def _new_metadata(self) -> AnswerMetadata:
        return AnswerMetadata(self._ids.hex(24), int(self._clock.time()))


async def _send_history(
    upstream: Upstream, body: Mapping[str, Any], send: Callable[[Mapping[str, Any]], Awaitable[T]]
) -> T:
    """Sends a request with the reasoning that this upstream gave; in another form if the upstream refuses that."""
    request = fit_reasoning(_order_history(body), upstream.served_model)
    try:
        return await send(request)
    except RequestRefused as exc:
        other_request = change_refused_reasoning(request, exc)
        if other_request is request:
            raise
        return await send(other_request)


async def _assemble_completion(
    events: AsyncGenerator[bytes, None], meter: UsageMeter, follow_text: FollowText
) -> dict[str, Any]:
    assembler = CompletionAssembler(LARGEST)
    follow_text(None)
    async with aclosing(events):
        async for event in events:
            meter.record_event(event)
            if text := assembler.add(event):
                follow_text(text)
    completion = assembler.build_completion(meter)
    if completion is None:
        raise UpstreamMalformed
    return completion


def _order_history(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a request with the results of tools behind their calls."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return body
    if not any(message.get("role") == "tool" for message in messages):
        return body
    return {**body, "messages": place_results(messages)}


def _with_origin(metadata: AnswerMetadata, upstream: Upstream) -> AnswerMetadata:
    return replace(metadata, origin=name_origin(upstream.served_model))


def _tell_text(answer: Mapping[str, Any], follow_text: FollowText | None) -> None:
    """Passes on the text of an answer that arrived in one piece."""
    content = answer["choices"][0]["message"].get("content") if follow_text and answer["choices"] else None
    if follow_text is not None and isinstance(content, str):
        follow_text(None)
        follow_text(content)


def _build_upstream(model: Model, served_model: Model, provider: Provider) -> Upstream:
    secret = provider.api_key
    secret_digest = sha256(secret.encode()).hexdigest()[:12]
    return Upstream(
        id=f"{model.id} {served_model.provider}:{served_model.upstream_name} {secret_digest}",
        provider=served_model.provider,
        model=served_model.upstream_name,
        api_base=provider.api_base,
        api_key=secret,
        served_model=served_model,
        is_relayed=provider.wire == "openai" and "responses_only" not in served_model.features,
        is_guarded=provider.is_guarded,
    )


_get_upstream = lru_cache(maxsize=4096)(_build_upstream)
"""Cached, for the installation's own providers: there are few, and every call needs one."""


def _with_usage(body: Mapping[str, Any]) -> dict[str, Any]:
    """Builds the request for a stream that reports its usage at the end."""
    return {**body, "stream": True, "stream_options": {"include_usage": True}}
