"""Stored responses, with which later requests can continue a conversation.

They are rows of the response cache, found by the response's id instead of by the request.
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
from baobab.runtime.gateway.events import event_data
from baobab.runtime.gateway.wires.chunks import encode_named_event
from baobab.storage.secrets import SecretUnreadable
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.tools.ai import cache_rows
from baobab.tools.ai.errors import ItemNotFound, ResponseNotFound
from baobab.tools.ai.metered_call import payer_of
from baobab.tools.ai.stored_items import find_items, item_digests, item_rows
from baobab.tools.ai.tables import response_cache
from baobab.tools.core import Call, EndUser

DAYS = 30
LARGEST = 8 * 2**20
"""The most bytes of a conversation that is stored."""
_WITH_RESPONSE = tuple(
    f"event: response.{state}\n".encode() for state in ("created", "in_progress", "completed", "incomplete")
)
_ENDED = _WITH_RESPONSE[2:]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request's items after those of the earlier conversation, and whether the answer is stored."""

    call: Call
    items: list[Any]
    previous_id: str | None
    store: bool

    async def finish_response(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Stores the answer if asked to and returns it; its `store` says whether it is stored."""
        response = self._render_response(answer)
        response["store"] = self.store and await self._keep(response)
        return response

    async def wrap_stream(self, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Passes on the events of an answer, and stores it before the last one."""
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if not piece.startswith(_WITH_RESPONSE):
                    yield piece
                    continue
                event, answer = _read(piece)
                response = self._render_response(answer)
                if piece.startswith(_ENDED):
                    response["store"] = self.store and await self._keep(response)
                yield encode_named_event({**event, "response": response})

    def _render_response(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {**answer, "store": self.store, "previous_response_id": self.previous_id}

    async def _keep(self, response: Mapping[str, Any]) -> bool:
        call, now = self.call, self.call.now
        content = to_json({"items": self.items, "response": response})
        if len(content) > LARGEST:
            return False
        database, digest = _database(call), _digest(call, str(response.get("id")))
        row = {
            "digest": digest,
            "organisation_id": payer_of(call).organisation_id,
            "app_id": None if call.app is None else call.app.id,
            "kept_at": now,
            "expires_at": now + timedelta(days=DAYS),
            "size": len(content),
            "answer": call.services.vault.seal(content, _context(digest)),
        }
        try:
            # A long stream may outlive its app; then nobody would remove the rows.
            if call.app is not None and await call.services.directory.is_gone(call.app.id):
                return False
            await cache_rows.keep(
                database, row, *item_rows(call.services.vault, _scope(call), response.get("output"), row)
            )
        except DatabaseUnavailable as exc:
            # The caller still gets the answer.
            _log.warning("a response could not be stored (%s)", type(exc).__name__)
            return False
        return True


async def open_conversation(call: Call, new_input: Any, previous_id: str | None, *, store: bool) -> Conversation:
    """Opens a request's conversation, with the items of stored responses that it refers to or continues.

    Raises ResponseNotFound or ItemNotFound.
    """
    items = (
        [{"type": "message", "role": "user", "content": new_input}] if isinstance(new_input, str) else list(new_input)
    )
    items = await _resolve_references(call, items)
    if previous_id is not None:
        stored_response = await _load_response(call, previous_id)
        items = [*stored_response["items"], *filter(_goes_on, stored_response["response"].get("output") or ()), *items]
    return Conversation(call, items, previous_id, store)


async def _resolve_references(call: Call, items: list[Any]) -> list[Any]:
    """Replaces references by the items that they refer to, and leaves out reasoning that cannot be sent again."""
    reference_ids = {at: item.get("id") for at, item in enumerate(items) if _is_reference(item)}
    if not reference_ids:
        return items
    ids = list(dict.fromkeys(id_ for id_ in reference_ids.values() if isinstance(id_, str)))
    stored_items = await find_items(_database(call), call.services.vault, _scope(call), ids, call.now)
    for at, id_ in reference_ids.items():
        if not isinstance(id_, str) or id_ not in stored_items:
            raise ItemNotFound(
                f"`input[{at}]` refers to an item that is not stored here.", details={"param": f"input[{at}]"}
            )
    all_items = [stored_items[reference_ids[at]] if at in reference_ids else item for at, item in enumerate(items)]
    return [item for at, item in enumerate(all_items) if at not in reference_ids or _goes_on(item)]


def _is_reference(item: Any) -> bool:
    """Returns whether an item is a reference; the type may be missing if there is only an id."""
    return isinstance(item, dict) and (
        item.get("type") == "item_reference" or (item.get("type") is None and item.keys() <= {"id", "type"})
    )


async def get_response(call: Call, response_id: str) -> dict[str, Any]:
    """Returns a stored response; raises ResponseNotFound."""
    response: dict[str, Any] = (await _load_response(call, response_id))["response"]
    return response


async def delete_response(call: Call, response_id: str) -> None:
    """Deletes a stored response and its items; raises ResponseNotFound. Responses that continue it keep its items."""
    response = (await _load_response(call, response_id))["response"]
    digests = [_digest(call, response_id), *item_digests(_scope(call), response.get("output"))]
    deletion = delete(response_cache).where(response_cache.c.digest.in_(digests))
    if (database := _database(call)) is call.unit.database:
        await call.execute(deletion)
    else:
        async with database.writing(lock=None) as connection:
            await connection.execute(deletion)


async def _load_response(call: Call, response_id: str) -> dict[str, Any]:
    digest = _digest(call, response_id)
    sealed_response = await cache_rows.find(_database(call), digest, call.now)
    if sealed_response is None:
        raise ResponseNotFound
    try:
        response: dict[str, Any] = from_json(call.services.vault.open(sealed_response, _context(digest)))
    except SecretUnreadable as exc:
        raise ResponseNotFound from exc
    return response


def _read(piece: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parses an event and the response in it."""
    try:
        event = from_json(event_data(piece) or b"")
    except ValueError as exc:
        raise UpstreamMalformed from exc
    response = event.get("response") if isinstance(event, dict) else None
    if not isinstance(response, dict):
        raise UpstreamMalformed
    return event, response


def _goes_on(item: Any) -> bool:
    """Returns whether an item of an answer can be sent again: reasoning only if it is encrypted."""
    return isinstance(item, dict) and (item.get("type") != "reasoning" or bool(item.get("encrypted_content")))


def _digest(call: Call, response_id: str) -> str:
    """Returns the key of a response's row; it contains the owner, so that nobody else finds it by its id."""
    return hashlib.sha256(to_json(("response", *_scope(call), response_id))).hexdigest()


def _scope(call: Call) -> tuple[str, ...]:
    """Returns the owner of responses: an organisation, an app, or one of the app's users."""
    if call.app is None:
        return (payer_of(call).organisation_id,)
    user = (call.caller.user_id,) if isinstance(call.caller, EndUser) else ()
    return (call.app.organisation_id, call.app.id, *user)


def _database(call: Call) -> Database:
    return call.services.database if call.app is None else call.stores.database


def _context(digest: str) -> str:
    return f"response_cache.response:{digest}"
