"""The relay passes a request's bytes to a provider that speaks OpenAI's wire format, and its answer's bytes back.

Unknown fields survive in both directions. Of an answer only the usage is read.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.completion_events import stream_completion
from baobab.runtime.gateway.connection import HttpAnswer, IncompleteAnswer, NoAnswer, RequestNotSent
from baobab.runtime.gateway.connection_pool import ConnectionPool, dial_host
from baobab.runtime.gateway.errors import (
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamTimeout,
)
from baobab.runtime.gateway.events import DONE, KEEP_ALIVE, LARGEST, event_data, split_events
from baobab.runtime.gateway.json_weight import is_heavy
from baobab.runtime.gateway.mended_answers import find_usage
from baobab.runtime.gateway.parameters import ask_without_refused
from baobab.runtime.gateway.refusal import build_refusal
from baobab.runtime.gateway.retry_timeouts import DEFAULT_TIMEOUTS, RetryTimeouts
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires.wire import Wire
from baobab.runtime.net.addresses import Target
from baobab.runtime.net.egress import USER_AGENT, Egress, EgressError
from baobab.tools.core.types import parse_json

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
# OpenAI writes `"usage": null` into every event before the one with the usage; those need not be parsed.
_USAGE_FIELD = re.compile(rb'"usage"\s*+:(?!\s*+null\b)')
# This does not match inside a text, where quotation marks are escaped.
_CHOICE_ENDS = re.compile(rb'"finish_reason"\s*+:\s*+"')
_END = b"[DONE]"
_FAILS = (b"event: error", b"event:error")


class Relay:
    """Sends requests to providers; each process has one, used on one event loop.

    guard: the egress rules for connections to customers' own servers; without it they cannot be called.
    retry_timeouts: how long a provider may take if the upstream has no bounds of its own.
    largest, longest: the most bytes of an answer in one piece, and of a stream. A customer's own server may send at
    most 8 MiB in one piece and 256 KiB in an event, and no JSON that is slow to parse (see json_weight.py).
    """

    def __init__(
        self,
        guard: Egress | None = None,
        *,
        retry_timeouts: RetryTimeouts = DEFAULT_TIMEOUTS,
        largest: int = 64 * 2**20,
        longest: int = 512 * 2**20,
    ) -> None:
        self._guard = guard
        self.retry_timeouts = retry_timeouts
        self._largest = largest
        self._longest = longest
        self._connections = ConnectionPool(dial_host)
        # Customers' servers have a pool of their own, whose connections all lead to addresses that were checked.
        self._guarded_connections = None if guard is None else ConnectionPool(guard.dial, tls=guard.tls)

    async def close(self) -> None:
        await self._connections.close()
        if self._guarded_connections is not None:
            await self._guarded_connections.close()

    async def fetch_answer(
        self,
        upstream: Upstream,
        path: str,
        body: Mapping[str, Any],
        meter: UsageMeter,
        wire: Wire | None = None,
    ) -> dict[str, Any]:
        """Returns the answer in one piece and counts its usage in `meter`.

        wire: the wire format, if it is not OpenAI's chat completions or embeddings.
        """
        with _TranslateErrors():
            response = await self._send_request(upstream, path, body, meter, wire, is_streamed=False)
        return await self._read_answer(response, upstream, path, meter, wire)

    async def _read_answer(
        self, response: HttpAnswer, upstream: Upstream, path: str, meter: UsageMeter, wire: Wire | None = None
    ) -> dict[str, Any]:
        """Reads an answer in one piece, and counts its usage in `meter`."""
        with _TranslateErrors():
            try:
                raw = await _read_body(
                    response, min(self._largest, _LARGEST_GUARDED) if upstream.is_guarded else self._largest
                )
            finally:
                response.close()
        check = _CHECKS[path] if wire is None else wire.check_answer
        parse = partial(_parse_answer, raw, check, is_guarded=upstream.is_guarded)
        answer = parse() if len(raw) <= _AT_ONCE else await asyncio.to_thread(parse)
        # Only now: nobody pays for half an answer.
        meter.has_begun = True
        meter.count_usage(answer.get("usage"))
        if not meter.is_counted:
            meter.record_written(raw)
        return answer

    async def stream_answer(
        self, upstream: Upstream, path: str, body: Mapping[str, Any], meter: UsageMeter
    ) -> AsyncGenerator[bytes, None]:
        """Returns the events of an answer whose headers have arrived. The first event may still be an error.

        The provider is always asked for the usage; the event with it is passed on only if the caller asked for it too.
        """
        given_options = body.get("stream_options")
        wants_usage = isinstance(given_options, dict) and given_options.get("include_usage") is True
        options = {**(given_options if isinstance(given_options, dict) else {}), "include_usage": True}
        with _TranslateErrors():
            response = await self._send_request(
                upstream, path, {**body, "stream": True, "stream_options": options}, meter, is_streamed=True
            )
            is_whole = await _is_whole(response)
        if is_whole:
            answer = await self._read_answer(response, upstream, path, meter)
            return stream_completion(answer, meter, with_usage=wants_usage)
        pieces = split_events(
            _limit_size(response, self._longest), _LARGEST_GUARDED_EVENT if upstream.is_guarded else LARGEST
        )
        return _relay_events(response, pieces, meter, with_usage=wants_usage, choices=_count_choices(body))

    async def stream_on_wire(
        self, upstream: Upstream, wire: Wire, body: Mapping[str, Any], meter: UsageMeter
    ) -> AsyncGenerator[bytes, None]:
        """Returns the events of an answer in another wire format, whose events have names."""
        with _TranslateErrors():
            response = await self._send_request(
                upstream, wire.path, {**body, "stream": True}, meter, wire, is_streamed=True
            )
        return _relay_wire_events(response, wire, meter, self._longest)

    async def _send_request(
        self,
        upstream: Upstream,
        path: str,
        body: Mapping[str, Any],
        meter: UsageMeter,
        wire: Wire | None = None,
        *,
        is_streamed: bool,
    ) -> HttpAnswer:
        """Sends the request and returns the answer with its headers.

        Parameters that the provider refuses are left out if `meter` allows it. Other refusals raise an UpstreamFailed
        or another of the gateway's errors.
        """
        return await ask_without_refused(
            body, meter, partial(self._post_request, upstream, path, wire, is_streamed=is_streamed)
        )

    async def _post_request(
        self, upstream: Upstream, path: str, wire: Wire | None, body: Mapping[str, Any], *, is_streamed: bool
    ) -> HttpAnswer:
        headers = {**_HEADERS, **upstream.headers}
        if wire is not None:
            headers |= wire.headers
        request = {**body, "model": upstream.model}
        content = to_json(request)
        connections, target = self._choose_connections(upstream, upstream.build_url(path))
        retry_timeouts = upstream.retry_timeouts or self.retry_timeouts
        if not is_streamed:
            # The provider sends nothing until the whole answer is ready.
            retry_timeouts = RetryTimeouts(retry_timeouts.total, retry_timeouts.total, retry_timeouts.total)
        response = await connections.post_request(target, headers, content, retry_timeouts)
        if response.status == 200:
            return response
        try:
            raw = await _read_body(response, _LARGEST_REFUSAL)
        except (UpstreamFailed, IncompleteAnswer, TimeoutError):
            raw = b""
        finally:
            response.close()
        raise build_refusal(response.status, raw, response.headers, request, upstream)

    def _choose_connections(self, upstream: Upstream, url: str) -> tuple[ConnectionPool, Target]:
        if not upstream.is_guarded:
            return self._connections, _parse_target(url)
        assert self._guard is not None
        assert self._guarded_connections is not None
        return self._guarded_connections, self._guard.check_url(url)


@lru_cache(maxsize=256)
def _parse_target(url: str) -> Target:
    """Parses the address of a provider that an operator has set."""
    return Target.parse(url, https_only=False)


async def _relay_events(
    response: HttpAnswer, pieces: AsyncIterator[bytes], meter: UsageMeter, *, with_usage: bool, choices: int
) -> AsyncGenerator[bytes, None]:
    """Passes on the events of a stream.

    choices: the number of answers in the stream. Once all of them have finished, the stream's own end may be missing.
    """
    has_end = False
    open_choices = choices
    try:
        with _TranslateErrors():
            async for event in pieces:
                payload = event_data(event)
                if payload == _END:
                    has_end = True
                    break
                if payload is None:
                    yield KEEP_ALIVE
                    continue
                if not (payload.startswith(b"{") and payload.endswith(b"}")):
                    raise UpstreamMalformed
                if b'"error"' in event or event.startswith(_FAILS):
                    _raise_reported_error(_parse_failure(event, payload))
                meter.has_begun = True
                if open_choices > 0 and b'"finish_reason"' in event:
                    open_choices -= len(_CHOICE_ENDS.findall(event))
                if (
                    b'"usage"' in event
                    and _USAGE_FIELD.search(event)
                    and _is_usage_alone(payload, meter)
                    and not with_usage
                ):
                    continue
                yield event
        if not has_end and open_choices > 0:
            raise UpstreamMalformed
        meter.has_ended = True
        yield DONE
        if has_end:
            await _drain_answer(response)
    finally:
        response.close()


async def _is_whole(response: HttpAnswer) -> bool:
    """Returns whether an answer comes in one piece, as some servers answer whatever they are asked for."""
    if not response.headers.get("content-type", "").startswith("application/json"):
        return False
    try:
        return (await response.peek()).lstrip()[:1] == b"{"
    except BaseException:
        response.close()
        raise


async def _relay_wire_events(
    response: HttpAnswer, wire: Wire, meter: UsageMeter, longest: int
) -> AsyncGenerator[bytes, None]:
    parser, has_end = wire.build_parser(meter), False
    try:
        with _TranslateErrors():
            async for event in split_events(_limit_size(response, longest)):
                payload = event_data(event)
                if payload is None:
                    yield KEEP_ALIVE
                    continue
                if not (payload.startswith(b"{") and payload.endswith(b"}")):
                    raise UpstreamMalformed
                if event.startswith(_FAILS) or wire.notable_pattern.search(payload):
                    has_end = parser(_parse_failure(event, payload))
                meter.has_begun = True
                # Set before the yield: the reader may stop after the last event.
                meter.has_ended = has_end
                yield event
                if has_end:
                    break
        if not has_end:
            raise UpstreamMalformed
        await _drain_answer(response)
    finally:
        response.close()


def _count_choices(body: Mapping[str, Any]) -> int:
    count = body.get("n")
    return count if isinstance(count, int) and count > 0 else 1


def _parse_answer(raw: bytes, check: Callable[[Mapping[str, Any]], None], *, is_guarded: bool) -> dict[str, Any]:
    if is_guarded and is_heavy(raw):
        raise UpstreamMalformed
    try:
        answer = parse_json(raw)
    except ValueError as exc:
        raise UpstreamMalformed from exc
    if not isinstance(answer, dict):
        raise UpstreamMalformed
    check(answer)
    return answer


def _check_chat(answer: Mapping[str, Any]) -> None:
    """Raises an error for a chat completion that reports an error under status 200, or has another shape."""
    _raise_reported_error(answer)
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
    _raise_reported_error(answer)
    vectors = answer.get("data")
    if not isinstance(vectors, list) or not all(isinstance(vector, dict) for vector in vectors):
        raise UpstreamMalformed


_CHECKS = {"/chat/completions": _check_chat, "/embeddings": _check_vectors}


def _raise_reported_error(payload: Mapping[str, Any]) -> None:
    """Raises the error that an answer reports, if there is one, without the provider's own words.

    Resellers report errors inside a choice, too, or beside one.
    """
    choices = payload.get("choices")
    choice_errors = (
        (choice.get("error") for choice in choices if isinstance(choice, dict)) if isinstance(choices, list) else ()
    )
    error = next((error for error in (payload.get("error"), *choice_errors) if error), None)
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code <= 599 else 500
        raise build_refusal(status, to_json({"error": error}), None)


def _parse_failure(event: bytes, payload: bytes) -> dict[str, Any]:
    """Parses the data of an event. An event named `error` always counts as an error, whatever it contains."""
    data = _parse_object(payload)
    return {**data, "error": data.get("error") or data or True} if event.startswith(_FAILS) else data


def _is_usage_alone(payload: bytes | None, meter: UsageMeter) -> bool:
    """Counts the usage that an event reports. Returns whether it reports nothing else, as OpenAI's usage event does."""
    data = _parse_object(payload)
    usage = find_usage(data)
    meter.count_usage(usage)
    return data.get("choices") == [] and usage is not None


def _parse_object(payload: bytes | None) -> dict[str, Any]:
    try:
        parsed_value = from_json(payload or b"{}")
    except ValueError as exc:
        raise UpstreamMalformed from exc
    return parsed_value if isinstance(parsed_value, dict) else {}


async def _limit_size(response: HttpAnswer, longest: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for chunk in response:
        size += len(chunk)
        if size > longest:
            raise UpstreamMalformed
        yield chunk


async def _drain_answer(response: HttpAnswer) -> None:
    """Reads the short rest of an answer, so that the connection can be used again."""
    try:
        with _TranslateErrors():
            async with asyncio.timeout(_LAST_SECONDS):
                await _read_body(response, _LARGEST_REFUSAL)
    except UpstreamFailed:
        return


async def _read_body(response: HttpAnswer, limit: int) -> bytes:
    parts, size = [], 0
    async for chunk in response:
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            raise UpstreamMalformed
    return b"".join(parts)


class _TranslateErrors:
    """Turns errors of the connection into the gateway's own."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise UpstreamTimeout from error
        if isinstance(error, IncompleteAnswer):
            raise UpstreamMalformed("The model's provider broke off.") from error
        if isinstance(error, NoAnswer):
            raise UpstreamFailed("The model's provider broke off before it answered.") from error
        # Only admins of the organisation may learn that egress rules forbid its server, not its users.
        if isinstance(error, (RequestNotSent, OSError, EgressError)):
            raise UpstreamFailed("The model's provider cannot be reached.").mark_unbilled() from error
