"""A metered call to a model: reserves what it may cost, and charges the usage whatever becomes of the answer."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from functools import lru_cache

from baobab.runtime.gateway.gateway import Gateway, ModelCall
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.provider_access import UNLISTED
from baobab.runtime.gateway.retry_timeouts import NO_TIMEOUTS, RetryTimeouts
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.ai.answer_headers import log_refusal
from baobab.tools.ai.spans import ModelSpan
from baobab.tools.core import Account, AppKey, BaobabError, Call, EndUser
from baobab.tools.core.auth.callers import ScopedKey
from baobab.tools.core.limits.credits import Reservation, Usage
from baobab.tools.core.limits.money import MOST

_MILLION = 1_000_000
_USUAL_OUTPUT = 4096
"""The tokens that are reserved at least for an answer without a limit, if the model can write as many."""
_CHARACTERS_OF_A_TOKEN = 3
_RENEWED = 0.5
"""The part of a reservation's lifetime after which it is extended while the call goes on."""
_LATE_SECONDS = 120.0
"""How long after a call's time limit its reservation is still extended."""
_LATE_TRIES = 5
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
    _began_at: float | None = None
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
        self._reservation = await self.call.credits.reserve(
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
            unspent_nanos = reserved_amount - cost(price, UsageMeter(prompt=prompt))
            self.granted_tokens = max(1, min(longest, unspent_nanos * _MILLION // price.completion // answers))
        self._renew_later(
            ttl, asyncio.get_running_loop().time() + services.part(Gateway).retry_timeouts.total + _LATE_SECONDS
        )

    def start_clock(self) -> None:
        """Starts to measure the call's time."""
        self._began_at = self.call.services.clock.monotonic()

    def record_failure(self, error: BaseException) -> None:
        """Records the error that the call failed with."""
        self.failure = error.code if isinstance(error, BaobabError) else "left"
        if self.span is not None:
            self.span.record_failure(error)
        log_refusal(self.call, self.model, error)

    @property
    def cost(self) -> int:
        """The cost of the usage counted so far at the model's price, in nano-dollars."""
        return cost(self._price(self.meter.prompt), self.meter)

    async def end(self) -> None:
        """Charges the usage; nothing if the provider has not begun to answer. After a cancellation, call it again."""
        reservation, meter = self._reservation, self.meter
        if reservation is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if meter.has_begun:
            meter.estimate_usage(self.sent_characters)
            if not meter.is_counted and not meter.is_prompt_counted:
                meter.prompt = self._cap_prompt_tokens(meter.prompt)
        try:
            self._observe()
            span, self.span = self.span, None
            if span is not None:
                span.end(meter, 0 if self.byok or not meter.has_begun else self.cost)
        finally:
            await self._settle(reservation)
            self._reservation = None

    def _observe(self) -> None:
        """Reports the call to the gateway's observers, once."""
        gateway, began_at = self.call.services.part(Gateway), self._began_at
        if began_at is None:
            return
        self._began_at = None
        own_server = self.model.provider.startswith("server:")
        payer_ = "own_server" if own_server else "own_key" if self.byok else "platform"
        name = "*" if own_server else _usage_name(self.model)
        meter, seconds = self.meter, self.call.services.clock.monotonic() - began_at
        usage = (meter.prompt, meter.cached, meter.completion, self.cost) if meter.has_begun else (0, 0, 0, 0)
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
                await self.call.credits.extend(self._reservation, ttl)
        if self._reservation is not None:
            self._renew_later(ttl, until)

    async def _settle(self, reservation: Reservation) -> None:
        meter = self.meter
        if not meter.has_begun:
            # The reservation expires by itself, and the provider's error is of more use than this one.
            with contextlib.suppress(DatabaseUnavailable):
                await self.call.credits.release(reservation)
            return
        usage = Usage(_usage_name(self.model), meter.prompt, meter.completion, byok=self.byok)
        for attempt in range(_LATE_TRIES):
            try:
                await self.call.credits.settle(reservation, self.cost, usage)
            except DatabaseUnavailable:
                # The usage is still charged if the sweeper releases the reservation meanwhile.
                if attempt < _LATE_TRIES - 1:
                    await asyncio.sleep(2**attempt)
            else:
                return
        fields = {"organisation_id": self.payer.organisation_id, "reservation": reservation.id, "cost_nanos": self.cost}
        _log.error("the use of %s could not be written down", self.model.id, extra=fields)

    def _longest_output(self, prompt: int) -> int:
        """Returns the most tokens that an answer can have if the request has no limit."""
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
    """Returns the cost of the usage counted so far, at the model's price, in nano-dollars."""
    total = meter.prompt * price.prompt + meter.completion * price.completion
    for tokens, token_price in (
        (meter.cached, price.cached),
        (meter.cache_write, price.cache_write),
        (meter.cache_write_hour, price.cache_write_hour or price.cache_write),
    ):
        if token_price is not None:
            total += tokens * (token_price - price.prompt)
    return min(-(-total // _MILLION), MOST)
