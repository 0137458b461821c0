"""The relay: a request's bytes to a provider that speaks the OpenAI wire, and its answer's bytes back.

Fields that nobody here knows survive in both directions. What is read of an answer is its usage and nothing else.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.addresses import Target
from baobab.runtime.egress import USER_AGENT, Egress, EgressError
from baobab.runtime.gateway.connection import Answer, HalfAnswer, NoAnswer, NotSent
from baobab.runtime.gateway.connections import Connections, dial
from baobab.runtime.gateway.errors import (
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamTimeout,
)
from baobab.runtime.gateway.events import DONE, KEPT_ALIVE, LARGEST, data, events
from baobab.runtime.gateway.outcome import Outcome
from baobab.runtime.gateway.parameters import dropping
from baobab.runtime.gateway.patience import USUAL, Patience
from baobab.runtime.gateway.refusal import refusal
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.weight import is_heavy
from baobab.runtime.gateway.wires.wire import Wire

_HEADERS = {
    "user-agent": USER_AGENT,
    "accept": "*/*",
    "accept-encoding": "identity",
    "content-type": "application/json",
}
_LAST_SECONDS = 1.0
_LARGEST_REFUSAL = 64 * 1024
_LARGEST_GUARDED, _LARGEST_GUARDED_EVENT = 8 * 2**20, 256 * 1024
_AT_ONCE = 2**20
# OpenAI writes `"usage": null` into every event before the one that has it: they need not be read.
_USED = re.compile(rb'"usage"\s*+:(?!\s*+null\b)')
# Not where a text says so: the quotation marks in it are escaped.
_CHOICE_ENDS = re.compile(rb'"finish_reason"\s*+:\s*+"')
_END = b"[DONE]"
_FAILS = (b"event: error", b"event:error")


class Relay:
    """One for each process; used on one event loop.

    guard: by whose rules customers' own servers are connected to; without one, none is.
    patience: how long a provider is waited for, where the upstream has no bounds of its own.
    largest, longest: bytes of an answer in one piece, and in a stream. A customer's own server has 8 MiB in one piece,
    and 256 KiB for an event, at the most; and may not use them up for what is slow to read (weight.py).
    """

    def __init__(
        self,
        guard: Egress | None = None,
        *,
        patience: Patience = USUAL,
        largest: int = 64 * 2**20,
        longest: int = 512 * 2**20,
    ) -> None:
        self._guard = guard
        self.patience = patience
        self._largest = largest
        self._longest = longest
        self._connections = Connections(dial)
        # Customers' servers have connections of their own: none leads to an address that was not vetted.
        self._guarded = None if guard is None else Connections(guard.dial, tls=guard.tls)

    async def close(self) -> None:
        await self._connections.close()
        if self._guarded is not None:
            await self._guarded.close()

    async def whole(
        self,
        upstream: Upstream,
        path: str,
        body: Mapping[str, Any],
        outcome: Outcome,
        wire: Wire | None = None,
    ) -> dict[str, Any]:
        """The answer, in one piece. What it used is counted into `outcome`.

        wire: which other one is spoken; without it an answer has choices or vectors.
        """
        with _Translated():
            response = await self._sent(upstream, path, body, outcome, wire, streamed=False)
            try:
                raw = await _read(response, min(self._largest, _LARGEST_GUARDED) if upstream.guarded else self._largest)
            finally:
                response.close()
        check = _CHECKS[path] if wire is None else wire.check
        parse = partial(_answer, raw, check, guarded=upstream.guarded)
        answer = parse() if len(raw) <= _AT_ONCE else await asyncio.to_thread(parse)
        # Not before: half an answer is no answer, and nobody pays for it.
        outcome.begun = True
        outcome.count(answer.get("usage"))
        if not outcome.counted:
            outcome.wrote(raw)
        return answer

    async def stream(
        self, upstream: Upstream, path: str, body: Mapping[str, Any], outcome: Outcome
    ) -> AsyncGenerator[bytes, None]:
        """The events of an answer whose head is there. It has begun with its first event, which may be an error.

        The provider is always asked for the usage; the event that has it is passed on only where the caller asked too.
        """
        asked = body.get("stream_options")
        wanted = isinstance(asked, dict) and asked.get("include_usage") is True
        options = {**(asked if isinstance(asked, dict) else {}), "include_usage": True}
        with _Translated():
            response = await self._sent(
                upstream, path, {**body, "stream": True, "stream_options": options}, outcome, streamed=True
            )
        pieces = events(_bounded(response, self._longest), _LARGEST_GUARDED_EVENT if upstream.guarded else LARGEST)
        return _passed_on(response, pieces, outcome, wanted=wanted, choices=_choices(body))

    async def spoken(
        self, upstream: Upstream, wire: Wire, body: Mapping[str, Any], outcome: Outcome
    ) -> AsyncGenerator[bytes, None]:
        """The same of another wire, whose events have names. It has begun with its first event."""
        with _Translated():
            response = await self._sent(upstream, wire.path, {**body, "stream": True}, outcome, wire, streamed=True)
        return _overheard(response, wire, outcome, self._longest)

    async def _sent(
        self,
        upstream: Upstream,
        path: str,
        body: Mapping[str, Any],
        outcome: Outcome,
        wire: Wire | None = None,
        *,
        streamed: bool,
    ) -> Answer:
        """The answer's head; what the provider refuses, in our words. Parameters that may be left out are."""
        return await dropping(body, outcome, partial(self._post, upstream, path, wire, streamed=streamed))

    async def _post(
        self, upstream: Upstream, path: str, wire: Wire | None, body: Mapping[str, Any], *, streamed: bool
    ) -> Answer:
        headers = {**_HEADERS, **upstream.headers}
        if wire is not None:
            headers |= wire.headers
        asked = {**body, "model": upstream.model}
        content = to_json(asked)
        connections, target = self._way(upstream, upstream.url(path))
        patience = upstream.patience or self.patience
        if not streamed:
            # It is silent until all of it is there.
            patience = Patience(patience.total, patience.total, patience.total)
        response = await connections.post(target, headers, content, patience)
        if response.status == 200:
            return response
        try:
            raw = await _read(response, _LARGEST_REFUSAL)
        except (UpstreamFailed, HalfAnswer, TimeoutError):
            raw = b""
        finally:
            response.close()
        raise refusal(response.status, raw, response.headers, asked, upstream)

    def _way(self, upstream: Upstream, url: str) -> tuple[Connections, Target]:
        if not upstream.guarded:
            return self._connections, _declared(url)
        assert self._guard is not None
        assert self._guarded is not None
        return self._guarded, self._guard.checked(url)


@lru_cache(maxsize=256)
def _declared(url: str) -> Target:
    """Where an operator's setting leads."""
    return Target.of(url, https_only=False)


async def _passed_on(
    response: Answer, pieces: AsyncIterator[bytes], outcome: Outcome, *, wanted: bool, choices: int
) -> AsyncGenerator[bytes, None]:
    """choices: how many answers the stream has. Where each of them has ended, its own end may be missing."""
    ended = False
    left = choices
    try:
        with _Translated():
            async for event in pieces:
                payload = data(event)
                if payload == _END:
                    ended = True
                    break
                if payload is None:
                    yield KEPT_ALIVE
                    continue
                if not (payload.startswith(b"{") and payload.endswith(b"}")):
                    raise UpstreamMalformed
                if b'"error"' in event or event.startswith(_FAILS):
                    _raise_told(_failure(event, payload))
                outcome.begun = True
                if left > 0 and b'"finish_reason"' in event:
                    left -= len(_CHOICE_ENDS.findall(event))
                if b'"usage"' in event and _USED.search(event) and _is_usage_alone(payload, outcome) and not wanted:
                    continue
                yield event
        if not ended and left > 0:
            raise UpstreamMalformed
        outcome.ended = True
        yield DONE
        if ended:
            await _finish(response)
    finally:
        response.close()


async def _overheard(response: Answer, wire: Wire, outcome: Outcome, longest: int) -> AsyncGenerator[bytes, None]:
    heard, ended = wire.hearer(outcome), False
    try:
        with _Translated():
            async for event in events(_bounded(response, longest)):
                payload = data(event)
                if payload is None:
                    yield KEPT_ALIVE
                    continue
                if not (payload.startswith(b"{") and payload.endswith(b"}")):
                    raise UpstreamMalformed
                if event.startswith(_FAILS) or wire.notable.search(payload):
                    ended = heard(_failure(event, payload))
                outcome.begun = True
                # Whoever has read the last event may leave with it.
                outcome.ended = ended
                yield event
                if ended:
                    break
        if not ended:
            raise UpstreamMalformed
        await _finish(response)
    finally:
        response.close()


def _choices(body: Mapping[str, Any]) -> int:
    asked = body.get("n")
    return asked if isinstance(asked, int) and asked > 0 else 1


def _answer(raw: bytes, check: Callable[[Mapping[str, Any]], None], *, guarded: bool) -> dict[str, Any]:
    if guarded and is_heavy(raw):
        raise UpstreamMalformed
    try:
        answer = from_json(raw, allow_inf_nan=False)
    except ValueError as exc:
        raise UpstreamMalformed from exc
    if not isinstance(answer, dict):
        raise UpstreamMalformed
    check(answer)
    return answer


def _check_chat(answer: Mapping[str, Any]) -> None:
    """Some answer 200 and say in it what has gone wrong, or say something else than they were asked."""
    _raise_told(answer)
    choices = answer.get("choices")
    if not isinstance(choices, list) or not all(map(_is_choice, choices)):
        raise UpstreamMalformed


def _is_choice(choice: Any) -> bool:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return False
    calls = message.get("tool_calls")
    return calls is None or (isinstance(calls, list) and all(isinstance(call, dict) for call in calls))


def _check_vectors(answer: Mapping[str, Any]) -> None:
    _raise_told(answer)
    vectors = answer.get("data")
    if not isinstance(vectors, list) or not all(isinstance(vector, dict) for vector in vectors):
        raise UpstreamMalformed


_CHECKS = {"/chat/completions": _check_chat, "/embeddings": _check_vectors}


def _raise_told(told: Mapping[str, Any]) -> None:
    """A provider that fails in the middle says so in the answer, in words that are not ours to pass on.

    Resellers say so in a choice, too, or beside one.
    """
    choices = told.get("choices")
    inner = (choice.get("error") for choice in choices if isinstance(choice, dict)) if isinstance(choices, list) else ()
    error = next((error for error in (told.get("error"), *inner) if error), None)
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code <= 599 else 500
        raise refusal(status, to_json({"error": error}), None)


def _failure(event: bytes, payload: bytes) -> dict[str, Any]:
    """What an event of note says. One that is called an error is one, whatever is in it."""
    told = _object(payload)
    return {**told, "error": told.get("error") or told or True} if event.startswith(_FAILS) else told


def _is_usage_alone(payload: bytes | None, outcome: Outcome) -> bool:
    """Count what an event says was used; whether it says nothing else, as the one that is sent when asked for."""
    told = _object(payload)
    usage, choices = told.get("usage"), told.get("choices")
    if usage is None and isinstance(choices, list):
        # Moonshot says it in the last choice.
        usage = next((choice.get("usage") for choice in choices if isinstance(choice, dict)), None)
    outcome.count(usage)
    return choices == [] and usage is not None


def _object(payload: bytes | None) -> dict[str, Any]:
    try:
        told = from_json(payload or b"{}")
    except ValueError as exc:
        raise UpstreamMalformed from exc
    return told if isinstance(told, dict) else {}


async def _bounded(response: Answer, longest: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for chunk in response:
        size += len(chunk)
        if size > longest:
            raise UpstreamMalformed
        yield chunk


async def _finish(response: Answer) -> None:
    """Read to the end what ends at once anyway: the connection can then be used again."""
    try:
        with _Translated():
            async with asyncio.timeout(_LAST_SECONDS):
                await _read(response, _LARGEST_REFUSAL)
    except UpstreamFailed:
        return


async def _read(response: Answer, limit: int) -> bytes:
    parts, size = [], 0
    async for chunk in response:
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            raise UpstreamMalformed
    return b"".join(parts)


class _Translated:
    """What goes wrong on the way, in our words."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise UpstreamTimeout from error
        if isinstance(error, HalfAnswer):
            raise UpstreamMalformed("The model's provider broke off.") from error
        if isinstance(error, NoAnswer):
            raise UpstreamFailed("The model's provider broke off before it answered.") from error
        # Where a customer's server may not be called, its organisation's admins find out; not whoever chats.
        if isinstance(error, (NotSent, OSError, EgressError)):
            raise UpstreamFailed("The model's provider cannot be reached.").for_nothing() from error
