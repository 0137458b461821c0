"""Asking a model: which one, at whose expense, and that what it cost is counted whatever becomes of the answer."""

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
"""Tokens that are set aside at the least for an answer whose request names no limit, where a model writes as many."""
_CHARACTERS_OF_A_TOKEN = 3
_RENEWED = 0.5
"""The part of its time after which a reservation is held for as long again: the call goes on."""
_LATE_SECONDS = 120.0
"""After the time that a call may take nobody speaks for it any more."""
_LATE_TRIES = 5
_PASSED_ON = (UpstreamFailed, ContextTooLong, ContentRefused, ProviderLacksModel)
"""What another model may do better: then the next one is asked."""
_AHEAD, _AHEAD_BYTES = 64, 256 * 1024
"""Events of a stream that are read before somebody wants them, and what they have together."""
_PATIENCE_SECONDS = 5.0
"""How long a stream that nobody reads any more is read for its last event, which says what was used."""
_LONGEST_MODEL = 200

_log = logging.getLogger(__name__)
_renewing: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class Payer:
    """At whose expense a model is called."""

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
    """One call to a model, as it is counted. `begin` it, then `end` it once, from wherever."""

    call: Call
    model: Model
    payer: Payer
    byok: bool
    sent_characters: int
    retry_timeouts: RetryTimeouts = NO_TIMEOUTS
    meter: UsageMeter = field(default_factory=UsageMeter)
    granted_tokens: int | None = None
    """Tokens that the provider is told that an answer may have, where the request does not say."""
    span: ModelSpan | None = None
    """What a trace says of it; None where nothing is traced."""
    failure: str = ""
    """The code of what it failed with."""
    _began: float | None = None
    _reservation: Reservation | None = None
    _timer: asyncio.TimerHandle | None = None

    async def begin(self, limit: int | None, answers: int) -> None:
        """Set aside what it may cost; CreditsExhausted, BudgetExhausted.

        limit: tokens that each of the `answers` may have; None where the request does not say. Then as much is set
        aside as the model can write, or a share of what is left, and `most` is what the provider is told.
        """
        prompt = self._cap_prompt_tokens(-(-self.sent_characters // _CHARACTERS_OF_A_TOKEN))
        longest = self._longest_output(prompt) if limit is None else limit
        most_output = longest * answers
        services, price = self.call.services, self._price(prompt)
        amount, least = 0 if self.byok else cost(price, UsageMeter(prompt=prompt, completion=most_output)), None
        if limit is None and amount:
            least = cost(price, UsageMeter(prompt=prompt, completion=min(longest, _USUAL_OUTPUT) * answers))
        self._reservation = await services.credits.reserve(
            self.payer.organisation_id,
            amount,
            least=least,
            app_id=self.payer.app_id,
            key_id=self.payer.key_id,
            spender=self.call.context.spender,
            purpose=f"ai.{self.model.modality}",
            ttl_seconds=(ttl := min(max(60 + most_output / 10, 60), 600)),
        )
        granted = self._reservation.amount
        if limit is None and price.completion and amount and (granted < amount or self.model.max_output is None):
            left = granted - cost(price, UsageMeter(prompt=prompt))
            self.granted_tokens = max(1, min(longest, left * _MILLION // price.completion // answers))
        self._renew_later(
            ttl, asyncio.get_running_loop().time() + services.part(Gateway).retry_timeouts.total + _LATE_SECONDS
        )

    def start_clock(self) -> None:
        """From now on its time is counted."""
        self._began = self.call.services.clock.monotonic()

    def record_failure(self, error: BaseException) -> None:
        """Note what it failed with."""
        self.failure = error.code if isinstance(error, BaobabError) else "left"
        if self.span is not None:
            self.span.record_failure(error)
        log_refusal(self.call, self.model, error)

    @property
    def cost(self) -> int:
        """What it costs whoever pays the provider, as far as is known, in nano-dollars."""
        return cost(self._price(self.meter.prompt), self.meter)

    async def end(self) -> None:
        """Charge what was used; nothing where the provider has not begun to answer. Cancelled, it can be done anew."""
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
        """Tell those who count, once."""
        gateway, began = self.call.services.part(Gateway), self._began
        if began is None:
            return
        self._began = None
        own_server = self.model.provider.startswith("server:")
        payer_ = "own_server" if own_server else "own_key" if self.byok else "platform"
        name = "*" if own_server else _usage_name(self.model)
        outcome, seconds = self.meter, self.call.services.clock.monotonic() - began
        used = (outcome.prompt, outcome.cached, outcome.completion, self.cost) if outcome.has_begun else (0, 0, 0, 0)
        for observe in gateway.observers:
            observe(ModelCall(name, payer_, self.failure, seconds, *used))

    def _renew_later(self, ttl: float, until: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(ttl * _RENEWED, self._renew, ttl, until) if loop.time() < until else None

    def _renew(self, ttl: float, until: float) -> None:
        task = asyncio.create_task(self._renew_reservation(ttl, until), name="reservation")
        _renewing.add(task)
        task.add_done_callback(_renewing.discard)

    async def _renew_reservation(self, ttl: float, until: float) -> None:
        """What lapsed while its call goes on would be spent by others, too."""
        if self._reservation is not None:
            # What is charged in the end is charged all the same.
            with contextlib.suppress(DatabaseUnavailable):
                await self.call.services.credits.extend(self._reservation, ttl)
        if self._reservation is not None:
            self._renew_later(ttl, until)

    async def _settle(self, reservation: Reservation) -> None:
        services, outcome = self.call.services, self.meter
        if not outcome.has_begun:
            # What is not given back now comes back by itself, and why the provider failed is of more use.
            with contextlib.suppress(DatabaseUnavailable):
                await services.credits.release(reservation)
            return
        usage = Usage(_usage_name(self.model), outcome.prompt, outcome.completion, byok=self.byok)
        for attempt in range(_LATE_TRIES):
            try:
                await services.credits.settle(reservation, self.cost, usage)
            except DatabaseUnavailable:
                # What was used is owed: the sweeper may give the reservation back meanwhile, and this still counts.
                if attempt < _LATE_TRIES - 1:
                    await asyncio.sleep(2**attempt)
            else:
                return
        owed = {"organisation_id": self.payer.organisation_id, "reservation": reservation.id, "cost_nanos": self.cost}
        _log.error("the use of %s could not be written down", self.model.id, extra=owed)

    def _longest_output(self, prompt: int) -> int:
        """Tokens that an answer can have where the request does not say."""
        model = self.model
        return model.max_output or max((model.context_window or 0) - prompt, _USUAL_OUTPUT)

    def _cap_prompt_tokens(self, tokens: int) -> int:
        """As many as a conversation can have at the most: a picture has far more letters than tokens."""
        most = self.model.context_window if self.model.modality == "chat" else None
        return min(tokens, most or tokens)

    def _price(self, prompt_tokens: int) -> Price:
        gateway = self.call.services.part(Gateway)
        sold = self.meter.served_model or self.model
        return _marked_up(gateway.catalogue.get_price(sold, prompt_tokens), self.call.services.options.ai_markup)


@lru_cache(maxsize=1024)
def _marked_up(price: Price, percent: int) -> Price:
    return price.marked_up(percent)


def _usage_name(model: Model) -> str:
    """Its name in the books. Of models that no list names there may be any number: they share a line."""
    name = model.id.partition("/")[0] + "/*" if UNLISTED in model.features else model.id
    return name[:_LONGEST_MODEL]


def cost(price: Price, meter: UsageMeter) -> int:
    """Nano-dollars, each call rounded up to a whole one; at most what can be charged at once."""
    total = meter.prompt * price.prompt + meter.completion * price.completion
    for tokens, own in (
        (meter.cached, price.cached),
        (meter.cache_write, price.cache_write),
        (meter.cache_write_hour, price.cache_write_hour or price.cache_write),
    ):
        if own is not None:
            total += tokens * (own - price.prompt)
    return min(-(-total // _MILLION), MOST)


def select_models(call: Call, name: str | None, own: AiSettings, modality: Modality) -> list[Model]:
    """The model that is meant, and those to fall back on."""
    gateway = call.services.part(Gateway)
    wanted = name or (own.default_model if modality == "chat" else None) or _default_model(gateway, own, modality)
    if wanted is None:
        raise NoModel
    model = gateway.get_model(wanted, own.provider_access)
    if not is_model_allowed(gateway, own, model):
        raise ModelNotAllowed(f"The app allows {', '.join(own.allowed_models)}.")
    if model.modality == "video" and modality == "chat":
        raise UseVideoEndpoint
    if model.modality != modality:
        raise WrongEndpoint(f"`{model.id}` is a model for {model.modality}.")
    further = []
    for other in own.fallback_models if modality == "chat" else ():
        with contextlib.suppress(ModelNotFound):
            further.append(gateway.get_model(other, own.provider_access))
    usable = (other for other in further if other.modality == modality and is_model_allowed(gateway, own, other))
    return [model, *(other for other in usable if other.id != model.id)]


def preview_model(modality: Modality) -> Handler:
    """A preview of calls to models: which one would be asked. It raises what `chosen` raises."""

    async def preview(call: Call, model: str | None = None, **_: Any) -> str:
        metered = select_models(call, model, await get_call_settings(call), modality)[0]
        return f"It would ask the model {metered.id}."

    return preview


def is_model_allowed(gateway: Gateway, own: AiSettings, model: Model) -> bool:
    """Whether the app's settings allow the model, by whichever of its names they call it."""
    allowed = allowed_models(gateway, own)
    return allowed is None or model.id in allowed


def allowed_models(gateway: Gateway, own: AiSettings) -> frozenset[str] | None:
    """The ids of the only models that the app's settings allow; None where they allow all."""
    if not own.allowed_models:
        return None
    found = (gateway.find_model(name, own.provider_access) for name in own.allowed_models)
    return frozenset(model.id for model in found if model is not None)


def _default_model(gateway: Gateway, own: AiSettings, modality: Modality) -> str | None:
    """The platform's default: a small model of a provider that is there, else the built-in one."""
    for name in ("openai/gpt-4o-mini", "anthropic/claude-haiku-4.5", "google/gemini-2.5-flash"):
        if modality == "chat" and gateway.is_callable(name, own.provider_access):
            return name
    built_in = [model.id for model in gateway.catalogue.list_models(modality) if model.provider == "baobab"]
    return built_in[0] if built_in else None


async def call_models(
    call: Call,
    models: list[Model],
    own: AiSettings,
    body: Mapping[str, Any],
    ask: Callable[[MeteredCall, Provider | None], Awaitable[T]],
    *,
    limit: int | None = 0,
    answers: int = 1,
    cache: str = "",
) -> tuple[T, MeteredCall]:
    """What the first of the models that can begins to answer. Whoever gets it ends what is counted.

    ask: given the customer's own way to the model where there is one: what is called so is not charged.
    limit, answers: as in Asked.begin. cache: what the trace says of kept answers.
    """
    gateway, sent = call.services.part(Gateway), len(to_json(body))
    drops = _drops_parameters(call, body, own)
    last: BaobabError | None = None
    for model in models:
        provider = gateway.find_own_provider(model, own.provider_access)
        metered = MeteredCall(call, model, payer_of(call), provider is not None, sent, own.retry_timeouts)
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
                # Not hidden by a model that stands in: nobody would ever mend the key.
                raise _upstream_denied(exc) from exc
            if isinstance(exc, UpstreamFailed) and not exc.is_unbilled:
                raise
            # The fault of the model that was meant is of more use than that of one that stands in.
            last = last or exc
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
    raise last or Unavailable


def _drops_parameters(call: Call, body: Mapping[str, Any], own: AiSettings) -> bool:
    """Whether optional parameters that a model does not take are left out, as request, app or installation say."""
    metered = body.get(DROP)
    if metered is None:
        metered = call.services.options.ai_drop_params if own.drop_params is None else own.drop_params
    if not isinstance(metered, bool):
        raise RequestRefused(f"`{DROP}` is true or false.", details={"param": DROP})
    return metered


def _upstream_denied(refused: UpstreamDenied) -> UpstreamDenied:
    said = refused.__cause__.safe_text.rstrip(".: ") if isinstance(refused.__cause__, ProviderRefusal) else ""
    happened = "is not paid for at" if isinstance(refused, UpstreamUnpaid) else "is not accepted by"
    return type(refused)(
        f"Your own key {happened} the model's provider{': ' if said else ''}{said}.",
        headers=refused.headers,
        remediation="Set a valid one, or take it back: the app's `byokKey`, or the organisation's key for this provider"
        " (op:provider_keys_set) or this server (op:model_servers_update).",
    )


_ENDING: set[asyncio.Task[None]] = set()


async def wait_for_endings() -> None:
    """Wait until all that was left is counted: for as long as the credits that it is charged to are open."""
    loop = asyncio.get_running_loop()
    while ending := {task for task in _ENDING if task.get_loop() is loop}:
        await asyncio.wait(ending)


async def settle_call(metered: MeteredCall) -> None:
    """What was used is counted, even if whoever asked is gone by now."""
    try:
        await metered.end()
    except asyncio.CancelledError:
        # A task of its own would cost every other call more than this costs one: to settle twice is to settle once.
        keep_ending(metered.end())
        raise


def keep_ending(ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Do it to its end, whoever leaves; `ended` waits for it."""
    task = asyncio.create_task(ending)
    _ENDING.add(task)
    task.add_done_callback(_ENDING.discard)
    return task


def render_error_event(error: BaobabError, _before: int) -> bytes:
    """An error as the last event of a chat completion."""
    return encode_event(to_json(AI_ENVELOPE.render(error, "")))


async def meter_stream(
    pieces: AsyncGenerator[bytes, None],
    metered: MeteredCall,
    render_error: Callable[[BaobabError, int], bytes] = render_error_event,
    beat: bytes = b"",
) -> AsyncGenerator[bytes, None]:
    """The pieces of an answer; whoever stops reading them, and when, what was used is counted.

    told: an error as a last event, behind so many others. beat: what is sent where nothing has come for a while.
    """
    # Read by a task of its own: whoever leaves would otherwise cut off the provider before it says what was used.
    buffer = ReadAheadBuffer(_AHEAD, _AHEAD_BYTES, beat)
    reading = asyncio.create_task(_read_stream(pieces, metered, buffer, render_error))
    try:
        while (piece := await buffer.take()) is not None:
            yield piece
        await reading
    finally:
        # Not awaited here: a generator that is being closed cannot wait for the database.
        keep_ending(_finish_stream(reading, buffer, pieces, metered))


async def _read_stream(
    pieces: AsyncGenerator[bytes, None],
    metered: MeteredCall,
    buffer: ReadAheadBuffer,
    render_error: Callable[[BaobabError, int], bytes],
) -> None:
    seen = 0
    try:
        async for piece in pieces:
            metered.meter.record_event(piece)
            if metered.span is not None:
                metered.span.record_event(piece)
            seen += 1
            buffer.put(piece)
            if buffer.is_full:
                await buffer.wait_for_room()
    except BaobabError as error:
        metered.record_failure(error)
        # The status has been sent: all that can be said is a last event.
        buffer.put(render_error(error, seen))
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
