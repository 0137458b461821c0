"""Calls to models: chooses the model and the payer, and charges the usage whatever becomes of the answer."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from pydantic_core import to_json

from baobab.runtime.gateway.errors import (
    ContentRefused,
    ContextTooLong,
    ModelNotFound,
    NoModel,
    ProviderLacksModel,
    RequestRefused,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamUnpaid,
    UseVideoEndpoint,
    WrongEndpoint,
)
from baobab.runtime.gateway.events import encode_event
from baobab.runtime.gateway.gateway import Gateway, ModelCall
from baobab.runtime.gateway.model import Modality, Model, Price
from baobab.runtime.gateway.parameters import DROP
from baobab.runtime.gateway.provider_access import UNLISTED
from baobab.runtime.gateway.providers import Provider
from baobab.runtime.gateway.reason import ProviderRefusal
from baobab.runtime.gateway.retry_timeouts import NO_TIMEOUTS, RetryTimeouts
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.storage.database import DatabaseUnavailable
from baobab.tools.ai.answer_headers import log_refusal, set_dropped_header
from baobab.tools.ai.errors import AI_ENVELOPE, ModelNotAllowed, conceal
from baobab.tools.ai.read_ahead import ReadAheadBuffer
from baobab.tools.ai.settings import AiSettings, get_call_settings
from baobab.tools.ai.spans import ModelSpan, start_span
from baobab.tools.core.auth.callers import Account, AppKey, EndUser, ScopedKey
from baobab.tools.core.call import Call, Handler
from baobab.tools.core.credits import BudgetExhausted, CreditsExhausted, Reservation, Usage
from baobab.tools.core.errors import BaobabError, Unavailable
from baobab.tools.core.money import MOST

T = TypeVar("T")

_MILLION = 1_000_000
_USUAL_OUTPUT = 4096
"""The tokens that are reserved at least for an answer without a limit, if the model can write as many."""
_CHARACTERS_OF_A_TOKEN = 3
_RENEWED = 0.5
"""The part of a reservation's lifetime after which it is extended while the call goes on."""
_LATE_SECONDS = 120.0
"""How long after a call's time limit its reservation is still extended."""
_LATE_TRIES = 5
_PASSED_ON = (UpstreamFailed, ContextTooLong, ContentRefused, ProviderLacksModel)
"""The errors after which the next model is called, because it may succeed."""
_AHEAD, _AHEAD_BYTES = 64, 256 * 1024
"""The events of a stream that are read ahead of its reader, and their bytes together."""
_PATIENCE_SECONDS = 5.0
"""How long a stream whose reader has gone is read on, for the usage in its last event."""
_LONGEST_MODEL = 200

_log = logging.getLogger(__name__)
_renewing: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class Payer:
    """The organisation, app and key that pay for a call."""

    organisation_id: str
    app_id: str | None
    key_id: str | None


def payer_of(call: Call) -> Payer:
    caller = call.caller
    key_id = caller.key_id if isinstance(caller, (Account, AppKey, EndUser, ScopedKey)) else None
    if call.app is not None:
        return Payer(call.app.organisation_id, call.app.id, key_id)
    assert isinstance(caller, (Account, ScopedKey))
    return Payer(caller.organisation_id, None, key_id)


@dataclass(slots=True)
class MeteredCall:
    """One call to a model, from its reservation to its charge. Call `begin`, then `end` once."""

    call: Call
    model: Model
    payer: Payer
    byok: bool
    sent_characters: int
    retry_timeouts: RetryTimeouts = NO_TIMEOUTS
    meter: UsageMeter = field(default_factory=UsageMeter)
    granted_tokens: int | None = None
    """The limit of tokens that is sent to the provider if the request has none."""
    span: ModelSpan | None = None
    """The call's span in the trace; None if nothing is traced."""
    failure: str = ""
    """The code of the error that the call failed with; empty for a success."""
    _began: float | None = None
    _reservation: Reservation | None = None
    _timer: asyncio.TimerHandle | None = None

    async def begin(self, limit: int | None, answers: int) -> None:
        """Reserves what the call may cost; raises CreditsExhausted or BudgetExhausted.

        limit: the most tokens of each of the `answers`; None if the request has no limit. Then the reservation covers
        as much as the model can write, or less if the credits do not suffice, and `granted_tokens` limits the answer.
        """
        prompt = self._cap_prompt_tokens(-(-self.sent_characters // _CHARACTERS_OF_A_TOKEN))
        longest = self._longest_output(prompt) if limit is None else limit
        most_output = longest * answers
        services, price = self.call.services, self._price(prompt)
        amount, least_amount = 0 if self.byok else cost(price, UsageMeter(prompt=prompt, completion=most_output)), None
        if limit is None and amount:
            least_amount = cost(price, UsageMeter(prompt=prompt, completion=min(longest, _USUAL_OUTPUT) * answers))
        self._reservation = await services.credits.reserve(
            self.payer.organisation_id,
            amount,
            least=least_amount,
            app_id=self.payer.app_id,
            key_id=self.payer.key_id,
            spender=self.call.context.spender,
            purpose=f"ai.{self.model.modality}",
            ttl_seconds=(ttl := min(max(60 + most_output / 10, 60), 600)),
        )
        reserved_amount = self._reservation.amount
        if (
            limit is None
            and price.completion
            and amount
            and (reserved_amount < amount or self.model.max_output is None)
        ):
            unspent = reserved_amount - cost(price, UsageMeter(prompt=prompt))
            self.granted_tokens = max(1, min(longest, unspent * _MILLION // price.completion // answers))
        self._renew_later(
            ttl, asyncio.get_running_loop().time() + services.part(Gateway).retry_timeouts.total + _LATE_SECONDS
        )

    def start_clock(self) -> None:
        """Starts to measure the call's time."""
        self._began = self.call.services.clock.monotonic()

    def record_failure(self, error: BaseException) -> None:
        """Records the error that the call failed with."""
        self.failure = error.code if isinstance(error, BaobabError) else "left"
        if self.span is not None:
            self.span.record_failure(error)
        log_refusal(self.call, self.model, error)

    @property
    def cost(self) -> int:
        """What the usage counted so far costs at the model's price, in nano-dollars."""
        return cost(self._price(self.meter.prompt), self.meter)

    async def end(self) -> None:
        """Charges the usage; nothing if the provider has not begun to answer. After a cancellation, call it again."""
        reservation, outcome = self._reservation, self.meter
        if reservation is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if outcome.has_begun:
            outcome.estimate_usage(self.sent_characters)
            if not outcome.is_counted and not outcome.is_prompt_counted:
                outcome.prompt = self._cap_prompt_tokens(outcome.prompt)
        self._observe()
        span, self.span = self.span, None
        if span is not None:
            span.end(outcome, 0 if self.byok or not outcome.has_begun else self.cost)
        await self._settle(reservation)
        self._reservation = None

    def _observe(self) -> None:
        """Reports the call to the gateway's observers, once."""
        gateway, began = self.call.services.part(Gateway), self._began
        if began is None:
            return
        self._began = None
        own_server = self.model.provider.startswith("server:")
        payer_ = "own_server" if own_server else "own_key" if self.byok else "platform"
        name = "*" if own_server else _usage_name(self.model)
        outcome, seconds = self.meter, self.call.services.clock.monotonic() - began
        usage = (outcome.prompt, outcome.cached, outcome.completion, self.cost) if outcome.has_begun else (0, 0, 0, 0)
        for observe in gateway.observers:
            observe(ModelCall(name, payer_, self.failure, seconds, *usage))

    def _renew_later(self, ttl: float, until: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(ttl * _RENEWED, self._renew, ttl, until) if loop.time() < until else None

    def _renew(self, ttl: float, until: float) -> None:
        task = asyncio.create_task(self._renew_reservation(ttl, until), name="reservation")
        _renewing.add(task)
        task.add_done_callback(_renewing.discard)

    async def _renew_reservation(self, ttl: float, until: float) -> None:
        """Extends the reservation: if it expired during the call, other calls could spend the same credits."""
        if self._reservation is not None:
            # The charge at the end does not depend on the extension.
            with contextlib.suppress(DatabaseUnavailable):
                await self.call.services.credits.extend(self._reservation, ttl)
        if self._reservation is not None:
            self._renew_later(ttl, until)

    async def _settle(self, reservation: Reservation) -> None:
        services, outcome = self.call.services, self.meter
        if not outcome.has_begun:
            # The reservation expires by itself, and the provider's error is of more use than this one.
            with contextlib.suppress(DatabaseUnavailable):
                await services.credits.release(reservation)
            return
        usage = Usage(_usage_name(self.model), outcome.prompt, outcome.completion, byok=self.byok)
        for attempt in range(_LATE_TRIES):
            try:
                await services.credits.settle(reservation, self.cost, usage)
            except DatabaseUnavailable:
                # The usage is still charged if the sweeper releases the reservation meanwhile.
                if attempt < _LATE_TRIES - 1:
                    await asyncio.sleep(2**attempt)
            else:
                return
        owed = {"organisation_id": self.payer.organisation_id, "reservation": reservation.id, "cost_nanos": self.cost}
        _log.error("the use of %s could not be written down", self.model.id, extra=owed)

    def _longest_output(self, prompt: int) -> int:
        """The most tokens that an answer can have if the request has no limit."""
        model = self.model
        return model.max_output or max((model.context_window or 0) - prompt, _USUAL_OUTPUT)

    def _cap_prompt_tokens(self, tokens: int) -> int:
        """Limits an estimate to the model's context window: a picture has far more letters than tokens."""
        limit = self.model.context_window if self.model.modality == "chat" else None
        return min(tokens, limit or tokens)

    def _price(self, prompt_tokens: int) -> Price:
        gateway = self.call.services.part(Gateway)
        served_model = self.meter.served_model or self.model
        return _marked_up(
            gateway.catalogue.get_price(served_model, prompt_tokens), self.call.services.options.ai_markup
        )


@lru_cache(maxsize=1024)
def _marked_up(price: Price, percent: int) -> Price:
    return price.marked_up(percent)


def _usage_name(model: Model) -> str:
    """Returns the model's name in the usage records. All models of a vendor that no list names share one."""
    name = model.id.partition("/")[0] + "/*" if UNLISTED in model.features else model.id
    return name[:_LONGEST_MODEL]


def cost(price: Price, meter: UsageMeter) -> int:
    """Returns the cost of a call in nano-dollars, rounded up, and at most what one charge can hold."""
    total = meter.prompt * price.prompt + meter.completion * price.completion
    for tokens, token_price in (
        (meter.cached, price.cached),
        (meter.cache_write, price.cache_write),
        (meter.cache_write_hour, price.cache_write_hour or price.cache_write),
    ):
        if token_price is not None:
            total += tokens * (token_price - price.prompt)
    return min(-(-total // _MILLION), MOST)


def select_models(call: Call, name: str | None, ai_settings: AiSettings, modality: Modality) -> list[Model]:
    """Returns the requested model, followed by the models to fall back on.

    Raises NoModel, ModelNotFound, ModelNotAllowed, UseVideoEndpoint or WrongEndpoint.
    """
    gateway = call.services.part(Gateway)
    requested_name = (
        name
        or (ai_settings.default_model if modality == "chat" else None)
        or _default_model(gateway, ai_settings, modality)
    )
    if requested_name is None:
        raise NoModel
    model = gateway.get_model(requested_name, ai_settings.provider_access)
    if not is_model_allowed(gateway, ai_settings, model):
        raise ModelNotAllowed(f"The app allows only {', '.join(ai_settings.allowed_models)}.")
    if model.modality == "video" and modality == "chat":
        raise UseVideoEndpoint
    if model.modality != modality:
        raise WrongEndpoint(f"`{model.id}` is a model for {model.modality}.")
    fallbacks = []
    for fallback in ai_settings.fallback_models if modality == "chat" else ():
        with contextlib.suppress(ModelNotFound):
            fallbacks.append(gateway.get_model(fallback, ai_settings.provider_access))
    usable_fallbacks = (
        fallback
        for fallback in fallbacks
        if fallback.modality == modality and is_model_allowed(gateway, ai_settings, fallback)
    )
    return [model, *(fallback for fallback in usable_fallbacks if fallback.id != model.id)]


def preview_model(modality: Modality) -> Handler:
    """Builds a preview that names the model that a call would use. It raises the errors of `select_models`."""

    async def preview(call: Call, model: str | None = None, **_: Any) -> str:
        selected = select_models(call, model, await get_call_settings(call), modality)[0]
        return f"It would ask the model {selected.id}."

    return preview


def is_model_allowed(gateway: Gateway, ai_settings: AiSettings, model: Model) -> bool:
    """Whether the app's settings allow the model, under any of its names."""
    allowed_ids = allowed_models(gateway, ai_settings)
    return allowed_ids is None or model.id in allowed_ids


def allowed_models(gateway: Gateway, ai_settings: AiSettings) -> frozenset[str] | None:
    """Returns the ids of the models that the app's settings allow; None if they allow all."""
    if not ai_settings.allowed_models:
        return None
    models = (gateway.find_model(name, ai_settings.provider_access) for name in ai_settings.allowed_models)
    return frozenset(model.id for model in models if model is not None)


def _default_model(gateway: Gateway, ai_settings: AiSettings, modality: Modality) -> str | None:
    """Returns the platform's default: a small model of a provider that can be called, otherwise the built-in one."""
    for name in ("openai/gpt-4o-mini", "anthropic/claude-haiku-4.5", "google/gemini-2.5-flash"):
        if modality == "chat" and gateway.is_callable(name, ai_settings.provider_access):
            return name
    built_in = [model.id for model in gateway.catalogue.list_models(modality) if model.provider == "baobab"]
    return built_in[0] if built_in else None


async def call_models(
    call: Call,
    models: list[Model],
    ai_settings: AiSettings,
    body: Mapping[str, Any],
    ask: Callable[[MeteredCall, Provider | None], Awaitable[T]],
    *,
    limit: int | None = 0,
    answers: int = 1,
    cache: str = "",
) -> tuple[T, MeteredCall]:
    """Returns the answer of the first model that can begin one, and its metered call, which the caller must end.

    ask: calls the model; its second argument is the customer's own provider, if any, whose calls are not charged.
    limit, answers: as in `MeteredCall.begin`. cache: the state of the response cache, for the trace.
    """
    gateway, sent_characters = call.services.part(Gateway), len(to_json(body))
    drops = _drops_parameters(call, body, ai_settings)
    first_error: BaobabError | None = None
    for model in models:
        provider = gateway.find_own_provider(model, ai_settings.provider_access)
        metered = MeteredCall(
            call, model, payer_of(call), provider is not None, sent_characters, ai_settings.retry_timeouts
        )
        metered.meter.may_drop = drops
        try:
            await metered.begin(limit, answers)
        except (CreditsExhausted, BudgetExhausted) as exc:
            if isinstance(call.caller, EndUser):
                conceal(exc)
            raise
        metered.start_clock()
        metered.span = start_span(call, model, body, limit, cache=cache)
        try:
            answer = await ask(metered, provider)
        except _PASSED_ON as exc:
            metered.record_failure(exc)
            await metered.end()
            if provider is not None and isinstance(exc, UpstreamDenied):
                # A fallback model would hide this error, and nobody would ever replace the key.
                raise _upstream_denied(exc) from exc
            if isinstance(exc, UpstreamFailed) and not exc.is_unbilled:
                raise
            # The error of the requested model is of more use than that of a fallback.
            first_error = first_error or exc
        except BaseException as exc:
            metered.record_failure(exc)
            await settle_call(metered)
            raise
        else:
            if metered.span is not None:
                metered.span.record_answer(answer)
            if metered.meter.dropped_parameters:
                set_dropped_header(call, *metered.meter.dropped_parameters)
            return answer, metered
    raise first_error or Unavailable


def _drops_parameters(call: Call, body: Mapping[str, Any], ai_settings: AiSettings) -> bool:
    """Whether optional parameters that a model does not take are left out: by the request, the app or the option."""
    drops = body.get(DROP)
    if drops is None:
        drops = call.services.options.ai_drop_params if ai_settings.drop_params is None else ai_settings.drop_params
    if not isinstance(drops, bool):
        raise RequestRefused(f"`{DROP}` must be true or false.", details={"param": DROP})
    return drops


def _upstream_denied(error: UpstreamDenied) -> UpstreamDenied:
    reason = error.__cause__.safe_text.rstrip(".: ") if isinstance(error.__cause__, ProviderRefusal) else ""
    problem = "is not paid for at" if isinstance(error, UpstreamUnpaid) else "is not accepted by"
    return type(error)(
        f"Your own key {problem} the model's provider{': ' if reason else ''}{reason}.",
        headers=error.headers,
        retry_after=error.retry_after,
        remediation="Set a valid one, or take it back: the app's `byokKey`, or the organisation's key for this provider"
        " (op:provider_keys_set) or this server (op:model_servers_update).",
    )


_ENDING: set[asyncio.Task[None]] = set()


async def wait_for_endings() -> None:
    """Waits until all calls whose callers have gone are charged; the credits must stay open until then."""
    loop = asyncio.get_running_loop()
    while ending := {task for task in _ENDING if task.get_loop() is loop}:
        await asyncio.wait(ending)


async def settle_call(metered: MeteredCall) -> None:
    """Charges the usage even if the caller is cancelled meanwhile."""
    try:
        await metered.end()
    except asyncio.CancelledError:
        # Cheaper than a task for every call; settling a reservation twice charges it once.
        keep_ending(metered.end())
        raise


def keep_ending(ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Runs the coroutine to its end in a task of its own; `wait_for_endings` waits for it."""
    task = asyncio.create_task(ending)
    _ENDING.add(task)
    task.add_done_callback(_ENDING.discard)
    return task


def render_error_event(error: BaobabError, _before: int) -> bytes:
    """Renders an error as the last event of a chat completion."""
    return encode_event(to_json(AI_ENVELOPE.render(error, "")))


async def meter_stream(
    pieces: AsyncGenerator[bytes, None],
    metered: MeteredCall,
    render_error: Callable[[BaobabError, int], bytes] = render_error_event,
    beat: bytes = b"",
) -> AsyncGenerator[bytes, None]:
    """Passes on the pieces of an answer and charges its usage, even if the reader stops early.

    render_error: renders an error as the last event, given the number of events before it.
    beat: the piece that is sent if nothing has arrived for a while.
    """
    # A task of its own reads: a reader that leaves would otherwise cut the provider off before it reports the usage.
    buffer = ReadAheadBuffer(_AHEAD, _AHEAD_BYTES, beat)
    reading = asyncio.create_task(_read_stream(pieces, metered, buffer, render_error))
    try:
        while (piece := await buffer.take()) is not None:
            yield piece
        await reading
    finally:
        # Not awaited: a generator that is being closed cannot wait for the database.
        keep_ending(_finish_stream(reading, buffer, pieces, metered))


async def _read_stream(
    pieces: AsyncGenerator[bytes, None],
    metered: MeteredCall,
    buffer: ReadAheadBuffer,
    render_error: Callable[[BaobabError, int], bytes],
) -> None:
    events_before = 0
    try:
        async for piece in pieces:
            metered.meter.record_event(piece)
            if metered.span is not None:
                metered.span.record_event(piece)
            events_before += 1
            buffer.put(piece)
            if buffer.is_full:
                await buffer.wait_for_room()
    except BaobabError as error:
        metered.record_failure(error)
        # The status has already been sent, so the error can only be a last event.
        buffer.put(render_error(error, events_before))
    finally:
        buffer.end()


async def _finish_stream(
    reading: asyncio.Task[None],
    buffer: ReadAheadBuffer,
    pieces: AsyncGenerator[bytes, None],
    metered: MeteredCall,
) -> None:
    if metered.span is not None and not reading.done():
        metered.span.record_abandoned()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while metered.meter.has_begun and not metered.meter.is_counted and not reading.done():
                    if await buffer.take() is None:
                        break
        reading.cancel()
        await asyncio.wait((reading,))
        await pieces.aclose()
    finally:
        await metered.end()
