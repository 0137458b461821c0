"""Calls to models: tries the chosen models in turn, streams the answer, and settles the call whatever happens."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pydantic_core import to_json

from baobab.runtime.gateway.errors import (
    ContentRefused,
    ContextTooLong,
    ProviderLacksModel,
    RequestRefused,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamUnpaid,
)
from baobab.runtime.gateway.events import encode_event
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.parameters import DROP
from baobab.runtime.gateway.providers import Provider
from baobab.runtime.gateway.reason import ProviderRefusal
from baobab.tools.ai.answer_headers import set_dropped_header
from baobab.tools.ai.errors import AI_ENVELOPE, conceal
from baobab.tools.ai.metered_call import MeteredCall, payer_of
from baobab.tools.ai.read_ahead import ReadAheadBuffer
from baobab.tools.ai.settings import AiSettings
from baobab.tools.ai.spans import start_span
from baobab.tools.core import BaobabError, Call, EndUser, Unavailable
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted

T = TypeVar("T")

_PASSED_ON = (UpstreamFailed, ContextTooLong, ContentRefused, ProviderLacksModel)
"""The errors after which the next model is called, because it may succeed."""
_AHEAD, _AHEAD_BYTES = 64, 256 * 1024
"""The events of a stream that are read ahead of its reader, and their bytes together."""
_PATIENCE_SECONDS = 5.0
"""How long a stream whose reader has gone is read on, for the usage in its last event."""
_ending: set[asyncio.Task[None]] = set()


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
        metered_call = MeteredCall(
            call, model, payer_of(call), provider is not None, sent_characters, ai_settings.retry_timeouts
        )
        metered_call.meter.may_drop = drops
        try:
            await metered_call.begin(limit, answers)
        except (CreditsExhausted, BudgetExhausted) as exc:
            if isinstance(call.caller, EndUser):
                conceal(exc)
            raise
        # From here on, whatever fails gives back what was reserved.
        try:
            metered_call.start_clock()
            metered_call.span = start_span(call, model, body, limit, cache=cache)
            answer = await ask(metered_call, provider)
            if metered_call.span is not None:
                metered_call.span.record_answer(answer)
            if metered_call.meter.dropped_parameters:
                set_dropped_header(call, *metered_call.meter.dropped_parameters)
        except _PASSED_ON as exc:
            await _fail_call(metered_call, exc)
            if provider is not None and isinstance(exc, UpstreamDenied):
                # A fallback model would hide this error, and nobody would ever replace the key.
                raise _upstream_denied(exc) from exc
            if provider is not None and isinstance(exc, UpstreamFailed) and not isinstance(call.caller, EndUser):
                _add_providers_words(exc)
            if isinstance(exc, UpstreamFailed) and not exc.is_unbilled:
                raise
            # The error of the requested model is of more use than that of a fallback.
            first_error = first_error or exc
        except BaseException as exc:
            await _fail_call(metered_call, exc)
            raise
        else:
            return answer, metered_call
    raise first_error or Unavailable


async def _fail_call(metered_call: MeteredCall, error: BaseException) -> None:
    try:
        metered_call.record_failure(error)
    finally:
        await settle_call(metered_call)


def _drops_parameters(call: Call, body: Mapping[str, Any], ai_settings: AiSettings) -> bool:
    """Returns whether optional parameters that a model does not take are left out: by the request, the app or the
    option.
    """
    drops = body.get(DROP)
    if drops is None:
        drops = call.services.options.ai_drop_params if ai_settings.drop_params is None else ai_settings.drop_params
    if not isinstance(drops, bool):
        raise RequestRefused(f"`{DROP}` must be true or false.", details={"param": DROP})
    return drops


def _add_providers_words(error: UpstreamFailed) -> None:
    """Adds the safe part of what the provider said to its failure, for those whose server or key it is."""
    words = error.__cause__.safe_text.rstrip(".: ") if isinstance(error.__cause__, ProviderRefusal) else ""
    if words and words not in error.message:
        error.message = f"{error.message.rstrip('.')}: {words}."


def _upstream_denied(error: UpstreamDenied) -> UpstreamDenied:
    reason = error.__cause__.safe_text.rstrip(".: ") if isinstance(error.__cause__, ProviderRefusal) else ""
    problem = "is not paid for at" if isinstance(error, UpstreamUnpaid) else "is not accepted by"
    return type(error)(
        f"Your own key {problem} the model's provider{': ' if reason else ''}{reason}.",
        headers=error.headers,
        retry_after=error.retry_after,
        remediation="Set a valid one, or remove it: the app's `byokKey`, or the organisation's key for this provider"
        " (op:provider_keys_set) or this server (op:model_servers_update).",
    )


async def wait_for_endings() -> None:
    """Waits until all calls whose callers have gone are charged; the credits must stay open until then."""
    loop = asyncio.get_running_loop()
    while ending := {task for task in _ending if task.get_loop() is loop}:
        await asyncio.wait(ending)


async def settle_call(metered_call: MeteredCall) -> None:
    """Charges the usage even if the caller is cancelled meanwhile."""
    try:
        await metered_call.end()
    except asyncio.CancelledError:
        # Cheaper than a task for every call; settling a reservation twice charges it once.
        keep_ending(metered_call.end())
        raise


def keep_ending(ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Runs the coroutine to its end in a task of its own; `wait_for_endings` waits for it."""
    task = asyncio.create_task(ending)
    _ending.add(task)
    task.add_done_callback(_ending.discard)
    return task


def render_error_event(error: BaobabError, _before: int) -> bytes:
    """Renders an error as the last event of a chat completion."""
    return encode_event(to_json(AI_ENVELOPE.render(error, "")))


async def meter_stream(
    pieces: AsyncGenerator[bytes, None],
    metered_call: MeteredCall,
    render_error: Callable[[BaobabError, int], bytes] = render_error_event,
    beat: bytes = b"",
) -> AsyncGenerator[bytes, None]:
    """Passes on the pieces of an answer and charges its usage, even if the reader stops early.

    render_error: renders an error as the last event, given the number of events before it.
    beat: the piece that is sent if nothing has arrived for a while.
    """
    # A task of its own reads: a reader that leaves would otherwise cut the provider off before it reports the usage.
    buffer = ReadAheadBuffer(_AHEAD, _AHEAD_BYTES, beat)
    reading = asyncio.create_task(_read_stream(pieces, metered_call, buffer, render_error))
    try:
        while (piece := await buffer.take()) is not None:
            yield piece
        await reading
    finally:
        # Not awaited: a generator that is being closed cannot wait for the database.
        keep_ending(_finish_stream(reading, buffer, pieces, metered_call))


async def _read_stream(
    pieces: AsyncGenerator[bytes, None],
    metered_call: MeteredCall,
    buffer: ReadAheadBuffer,
    render_error: Callable[[BaobabError, int], bytes],
) -> None:
    events_before = 0
    try:
        async for piece in pieces:
            metered_call.meter.record_event(piece)
            if metered_call.span is not None:
                metered_call.span.record_event(piece)
            events_before += 1
            buffer.put(piece)
            if buffer.is_full:
                await buffer.wait_for_room()
    except BaobabError as error:
        metered_call.record_failure(error)
        # The status has already been sent, so the error can only be a last event.
        buffer.put(render_error(error, events_before))
    finally:
        buffer.end()


async def _finish_stream(
    reading: asyncio.Task[None],
    buffer: ReadAheadBuffer,
    pieces: AsyncGenerator[bytes, None],
    metered_call: MeteredCall,
) -> None:
    if metered_call.span is not None and not reading.done():
        metered_call.span.record_abandoned()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while metered_call.meter.has_begun and not metered_call.meter.is_counted and not reading.done():
                    if await buffer.take() is None:
                        break
        reading.cancel()
        await asyncio.wait((reading,))
        await pieces.aclose()
    finally:
        await metered_call.end()
