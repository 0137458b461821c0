"""The response cache: if the caller wants it, the very same request is answered again without calling a model."""

import contextlib
import hmac
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.completion_events import CompletionAssembler
from baobab.runtime.gateway.events import DONE
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.provider_access import ProviderAccess
from baobab.storage.secrets import SecretUnreadable
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.tools.ai import cache_rows
from baobab.tools.ai.metered_call import MeteredCall, payer_of
from baobab.tools.ai.schemas import _USUAL_SECONDS, CacheOptions
from baobab.tools.ai.spans import start_span
from baobab.tools.core import Call, EndUser

LARGEST = 2**20
"""The most bytes of an answer that is cached."""
# Fields that change how an answer is sent, but not its content.
_ASIDE = frozenset(("stream", "stream_options"))

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """The cache entry for one request.

    Two calls at once may both find it empty; then both call the model, and the later answer is kept.
    """

    call: Call
    model: Model
    request: Mapping[str, Any]
    digest: str
    seconds: int

    async def load(self) -> dict[str, Any] | None:
        """Returns the cached answer; None if there is none, or if the database is unavailable."""
        try:
            sealed_answer = await cache_rows.find(self._database, self.digest, self.call.now)
            if sealed_answer is None:
                return None
            answer: dict[str, Any] = from_json(self.call.services.vault.open(sealed_answer, self._context))
        except (DatabaseUnavailable, SecretUnreadable) as exc:
            _log.warning("a kept answer could not be read (%s)", type(exc).__name__)
            return None
        span = start_span(self.call, self.model, self.request, None, cache="hit")
        if span is not None:
            span.record_cache_hit(answer)
        return answer

    async def save(self, answer: Mapping[str, Any], metered_call: MeteredCall) -> None:
        """Caches a complete answer of the requested model; the answer of a fallback model is not cached."""
        if metered_call.model.id != self.model.id or not _is_complete(answer):
            return
        answer_json = to_json(answer)
        if len(answer_json) > LARGEST:
            return
        now = self.call.now
        row = {
            "digest": self.digest,
            "organisation_id": metered_call.payer.organisation_id,
            "app_id": metered_call.payer.app_id,
            "kept_at": now,
            "expires_at": now + timedelta(seconds=self.seconds),
            "size": len(answer_json),
            "answer": self.call.services.vault.seal(answer_json, self._context),
        }
        try:
            # A long stream may outlive its app; then nobody would remove the row.
            if self.call.app is None or not await self.call.services.directory.is_gone(self.call.app.id):
                await cache_rows.keep(self._database, row)
        except DatabaseUnavailable as exc:
            # The caller still gets the answer.
            _log.warning("an answer could not be kept (%s)", type(exc).__name__)

    async def save_stream(
        self, pieces: AsyncGenerator[bytes, None], metered_call: MeteredCall
    ) -> AsyncGenerator[bytes, None]:
        """Passes on the pieces of a stream, and caches the whole answer if the stream reaches its end."""
        assembler = CompletionAssembler(LARGEST)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if piece == DONE:
                    answer = assembler.build_completion(metered_call.meter)
                    if answer is not None:
                        await self.save(answer, metered_call)
                else:
                    assembler.add(piece)
                yield piece

    @property
    def _database(self) -> Database:
        call = self.call
        return call.services.database if call.app is None else call.stores.database

    @property
    def _context(self) -> str:
        """The context that a sealed answer is bound to, so that a copy in another row cannot be opened."""
        return f"response_cache.answer:{self.digest}"


def build_entry(
    call: Call, reach: ProviderAccess, model: Model, request: Mapping[str, Any], options: CacheOptions
) -> CacheEntry:
    """Builds the cache entry for a request.

    The entry is the same for one payer, app, user, model and request, whatever the order of the request's fields.
    reach: the caller's own keys and servers; after its server has moved, a model of it gets other entries.
    """
    payer = payer_of(call)
    user = call.caller.user_id if isinstance(call.caller, EndUser) else None
    cached_fields = {name: value for name, value in request.items() if name not in _ASIDE}
    own_addresses = (server.api_base for server in reach.servers.values() if server.provider_name == model.provider)
    key_text = json.dumps(
        (payer.organisation_id, payer.app_id, user, model.id, next(own_addresses, None), cached_fields), sort_keys=True
    )
    # Keyed, so that somebody who obtains the rows cannot guess the requests by trying.
    digest = hmac.digest(call.services.vault.derive("response cache"), key_text.encode(), "sha256").hex()
    return CacheEntry(call, model, request, digest, options.get("ttl", _USUAL_SECONDS))


def _is_complete(answer: Mapping[str, Any]) -> bool:
    """Returns whether the answer is complete and no error."""
    if answer.get("error") is not None:
        return False
    choices, vectors = answer.get("choices"), answer.get("data")
    if not isinstance(choices, list):
        return isinstance(vectors, list) and bool(vectors)
    reasons = [choice.get("finish_reason") if isinstance(choice, dict) else None for choice in choices]
    return bool(reasons) and all(reason not in (None, "error") for reason in reasons)
