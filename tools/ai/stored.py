"""Stored responses: what was said before, for a request that goes on with it.

They are kept answers like those of `cache_rows`, found by their id instead of by their request.
"""

import contextlib
import hashlib
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import delete

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.events import data
from baobab.runtime.gateway.wires.chunks import event
from baobab.storage.database import DatabaseUnavailable
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.ai import cache_rows
from baobab.tools.ai.asking import payer
from baobab.tools.call import Call
from baobab.tools.errors import NotFound

DAYS = 30
LARGEST = 8 * 2**20
"""Bytes of a conversation that is stored."""
_WITH_RESPONSE = tuple(
    f"event: response.{state}\n".encode() for state in ("created", "in_progress", "completed", "incomplete")
)
_ENDED = _WITH_RESPONSE[2:]

_log = logging.getLogger(__name__)


class ResponseNotFound(NotFound):
    code = "response_not_found"
    summary = "There is no such response here."
    remediation = (
        "Send the items of the conversation in `input`: responses are stored for 30 days, unless too many come."
    )


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request's items, with those that went before, and what is to become of the answer."""

    call: Call
    items: list[Any]
    previous: str | None
    store: bool

    async def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer, stored; it says whether it is."""
        response = self._told(answer)
        response["store"] = self.store and await self._keep(response)
        return response

    async def pieces(self, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The events of an answer, which is stored before its last one is passed on."""
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if not piece.startswith(_WITH_RESPONSE):
                    yield piece
                    continue
                told, answer = _read(piece)
                response = self._told(answer)
                if piece.startswith(_ENDED):
                    response["store"] = self.store and await self._keep(response)
                yield event({**told, "response": response})

    def _told(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {**answer, "store": self.store, "previous_response_id": self.previous}

    async def _keep(self, response: Mapping[str, Any]) -> bool:
        call, now = self.call, self.call.now
        plain = to_json({"items": self.items, "response": response})
        if len(plain) > LARGEST:
            return False
        digest = _digest(call, str(response.get("id")))
        row = {
            "digest": digest,
            "organisation_id": payer(call).organisation_id,
            "app_id": None,
            "kept_at": now,
            "expires_at": now + timedelta(days=DAYS),
            "size": len(plain),
            "answer": call.services.vault.seal(plain, _context(digest)),
        }
        try:
            await cache_rows.keep(call.services.database, row)
        except DatabaseUnavailable as exc:
            # The answer is there all the same.
            _log.warning("a response could not be stored (%s)", type(exc).__name__)
            return False
        return True


async def conversation(call: Call, given: Any, previous: str | None, *, store: bool) -> Conversation:
    """The items of a request that goes on with a stored response; ResponseNotFound where that is not there."""
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else list(given)
    if previous is not None:
        found = await _found(call, previous)
        items = [*found["items"], *filter(_goes_on, found["response"].get("output") or ()), *items]
    return Conversation(call, items, previous, store)


async def response(call: Call, response_id: str) -> dict[str, Any]:
    """A stored response; ResponseNotFound."""
    found: dict[str, Any] = (await _found(call, response_id))["response"]
    return found


async def remove(call: Call, response_id: str) -> None:
    """Forget a stored response; ResponseNotFound. Those that went on with it hold what was said before them."""
    table = cache_rows.response_cache
    gone = await call.execute(delete(table).where(table.c.digest == _digest(call, response_id)))
    if gone.rowcount == 0:
        raise ResponseNotFound


async def _found(call: Call, response_id: str) -> dict[str, Any]:
    digest = _digest(call, response_id)
    sealed = await cache_rows.find(call.services.database, digest, call.now)
    if sealed is None:
        raise ResponseNotFound
    try:
        found: dict[str, Any] = from_json(call.services.vault.open(sealed, _context(digest)))
    except SecretUnreadable as exc:
        raise ResponseNotFound from exc
    return found


def _read(piece: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """An event, and the response in it."""
    try:
        told = from_json(data(piece) or b"")
    except ValueError as exc:
        raise UpstreamMalformed from exc
    response = told.get("response") if isinstance(told, dict) else None
    if not isinstance(response, dict):
        raise UpstreamMalformed
    return told, response


def _goes_on(item: Any) -> bool:
    """Whether an item of an answer can be sent again: thoughts only where they are sealed."""
    return isinstance(item, dict) and (item.get("type") != "reasoning" or bool(item.get("encrypted_content")))


def _digest(call: Call, response_id: str) -> str:
    """Where a response stands: another organisation does not find it by its id."""
    told = to_json(("response", payer(call).organisation_id, response_id))
    return hashlib.sha256(told).hexdigest()


def _context(digest: str) -> str:
    return f"response_cache.response:{digest}"
