"""The relay: a request's bytes to a provider that speaks the OpenAI wire, and its answer's bytes back.

Fields that nobody here knows survive in both directions. What is read of an answer is its usage and nothing else.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.errors import (
    ContextTooLong,
    ModelNotFound,
    RequestRefused,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamTimeout,
)
from baobab.runtime.gateway.events import DONE, data, events
from baobab.runtime.gateway.outcome import Outcome
from baobab.runtime.gateway.upstream import Upstream
from baobab.tools.errors import BaobabError

if TYPE_CHECKING:
    import aiohttp

_CONNECT_SECONDS = 10.0
_LAST_SECONDS = 1.0
_LARGEST_REFUSAL = 64 * 1024
# OpenAI writes `"usage": null` into every event before the one that has it: they need not be read.
_USED = re.compile(rb'"usage"\s*+:(?!\s*+null\b)')
_END = b"[DONE]"


class Relay:
    """One for each process; used on one event loop.

    silence_seconds: how long a provider may say nothing. answer_seconds: how long all of an answer may take.
    largest: bytes of an answer in one piece.
    """

    def __init__(
        self, *, silence_seconds: float = 120.0, answer_seconds: float = 600.0, largest: int = 64 * 2**20
    ) -> None:
        self._silence_seconds = silence_seconds
        self._answer_seconds = answer_seconds
        self._largest = largest
        self._opened: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._opened = self._opened, None
        if session is not None:
            await session.close()

    async def whole(self, upstream: Upstream, path: str, body: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
        """The answer, in one piece. What it used is counted into `outcome`."""
        async with _translated(), await self._sent(upstream, path, body) as response:
            raw = await _read(response, self._largest)
        try:
            answer = from_json(raw, allow_inf_nan=False)
        except ValueError as exc:
            raise UpstreamMalformed from exc
        if not isinstance(answer, dict):
            raise UpstreamMalformed
        # Not before: half an answer is no answer, and nobody pays for it.
        outcome.begun = True
        outcome.count(answer.get("usage"))
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
        async with _translated():
            response = await self._sent(upstream, path, {**body, "stream": True, "stream_options": options})
        return _passed_on(response, outcome, wanted=wanted)

    async def _sent(self, upstream: Upstream, path: str, body: Mapping[str, Any]) -> "aiohttp.ClientResponse":
        """The answer's head; what the provider refuses, in our words."""
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if upstream.api_key:
            headers["authorization"] = f"Bearer {upstream.api_key}"
        content = to_json({**body, "model": upstream.model})
        response = await self._session().post(
            upstream.api_base + path, data=content, headers=headers, allow_redirects=False
        )
        if response.status == 200:
            return response
        try:
            raw = await _read(response, _LARGEST_REFUSAL)
        except UpstreamFailed:
            raw = b""
        finally:
            response.close()
        raise refusal(response.status, raw, response.headers.get("retry-after"))

    def _session(self) -> "aiohttp.ClientSession":
        if self._opened is None:
            import aiohttp

            patience = aiohttp.ClientTimeout(
                total=self._answer_seconds, sock_connect=_CONNECT_SECONDS, sock_read=self._silence_seconds
            )
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            self._opened = aiohttp.ClientSession(
                timeout=patience, connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._opened


async def _passed_on(
    response: "aiohttp.ClientResponse", outcome: Outcome, *, wanted: bool
) -> AsyncGenerator[bytes, None]:
    ended = False
    try:
        async with _translated():
            async for event in events(response.content.iter_any()):
                payload = data(event)
                if payload == _END:
                    ended = True
                    break
                if payload is not None and not (payload.startswith(b"{") and payload.endswith(b"}")):
                    raise UpstreamMalformed
                if b'"error"' in event:
                    _raise_told(payload)
                if payload is not None:
                    outcome.begun = True
                if b'"usage"' in event and _USED.search(event) and _is_usage_alone(payload, outcome) and not wanted:
                    continue
                yield event
        if not ended:
            raise UpstreamMalformed
        yield DONE
        await _finish(response)
    finally:
        response.close()


def _raise_told(payload: bytes | None) -> None:
    """A provider that fails in the middle says so in an event, in words that are not ours to pass on."""
    told = _object(payload)
    if told.get("error") is not None and not told.get("choices"):
        code = told["error"].get("code") if isinstance(told["error"], dict) else None
        raise refusal(code if isinstance(code, int) and 400 <= code <= 599 else 502, payload or b"", None)


def _is_usage_alone(payload: bytes | None, outcome: Outcome) -> bool:
    """Count what an event says was used; whether it says nothing else, as the one that is sent when asked for."""
    told = _object(payload)
    outcome.count(told.get("usage"))
    return told.get("choices") == [] and told.get("usage") is not None


def _object(payload: bytes | None) -> dict[str, Any]:
    try:
        told = from_json(payload or b"{}")
    except ValueError as exc:
        raise UpstreamMalformed from exc
    return told if isinstance(told, dict) else {}


async def _finish(response: "aiohttp.ClientResponse") -> None:
    """Read to the end what ends at once anyway: the connection can then be used again."""
    try:
        async with _translated(), asyncio.timeout(_LAST_SECONDS):
            await _read(response, _LARGEST_REFUSAL)
    except UpstreamFailed:
        return


async def _read(response: "aiohttp.ClientResponse", limit: int) -> bytes:
    parts, size = [], 0
    async for chunk in response.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            raise UpstreamMalformed
    return b"".join(parts)


def refusal(status: int, raw: bytes, retry_after: str | None) -> BaobabError:
    """A provider's refusal in our words. Of its own, only the code and the parameter's name are looked at."""
    try:
        told = from_json(raw)
    except ValueError:
        told = None
    error = told.get("error") if isinstance(told, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    parameter = error.get("param") if isinstance(error, dict) else None
    if status in (400, 413, 422):
        if code == "context_length_exceeded":
            return ContextTooLong()
        named = isinstance(parameter, str) and parameter.isascii() and len(parameter) <= 100
        return RequestRefused(details={"param": parameter} if named else None)
    if status == 404:
        return ModelNotFound("The model's provider does not have it.")
    if status == 429:
        wait = retry_after if retry_after and retry_after.isdigit() and len(retry_after) < 6 else "1"
        return UpstreamBusy(headers={"retry-after": wait})
    kinds = {401: UpstreamDenied, 403: UpstreamDenied, 408: UpstreamTimeout, 504: UpstreamTimeout}
    return kinds.get(status, UpstreamFailed)()


class _translated:  # noqa: N801 - used as a function is
    """What aiohttp raises, in our words."""

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import aiohttp

        if isinstance(error, (asyncio.TimeoutError, aiohttp.ServerTimeoutError)):
            raise UpstreamTimeout from error
        if isinstance(error, aiohttp.ClientPayloadError):
            raise UpstreamMalformed("The model's provider broke off.") from error
        if isinstance(error, (aiohttp.ClientError, OSError)):
            raise UpstreamFailed from error
