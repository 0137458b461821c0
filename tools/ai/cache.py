"""Kept answers: the very same request is answered again without asking a model, where its caller wants that."""

import contextlib
import hmac
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.events import DONE
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.provider_access import ProviderAccess
from baobab.storage.database import Database, DatabaseUnavailable
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.ai import cache_rows
from baobab.tools.ai.completion_events import CompletionAssembler
from baobab.tools.ai.model_calls import MeteredCall, payer_of
from baobab.tools.ai.schemas import _USUAL_SECONDS, CacheOptions
from baobab.tools.ai.spans import start_span
from baobab.tools.core.auth.callers import EndUser
from baobab.tools.core.call import Call

LARGEST = 2**20
"""Bytes of an answer that is kept."""
# How an answer is sent, and not what it says.
_ASIDE = frozenset(("stream", "stream_options"))

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Where the answer to one request is kept.

    Two calls that come at once may both find it empty: each asks the model, and the later answer stays.
    """

    call: Call
    model: Model
    request: Mapping[str, Any]
    digest: str
    seconds: int

    async def load(self) -> dict[str, Any] | None:
        """The kept answer. A database that does not answer holds none."""
        try:
            sealed = await cache_rows.find(self._database, self.digest, self.call.now)
            if sealed is None:
                return None
            answer: dict[str, Any] = from_json(self.call.services.vault.open(sealed, self._context))
        except (DatabaseUnavailable, SecretUnreadable) as exc:
            _log.warning("a kept answer could not be read (%s)", type(exc).__name__)
            return None
        traced = start_span(self.call, self.model, self.request, None, cache="hit")
        if traced is not None:
            traced.record_cache_hit(answer)
        return answer

    async def save(self, answer: Mapping[str, Any], metered: MeteredCall) -> None:
        """Keep a whole answer of the model that was meant: another's stands in for it now, and not for days."""
        if metered.model.id != self.model.id or not _is_complete(answer):
            return
        plain = to_json(answer)
        if len(plain) > LARGEST:
            return
        now = self.call.now
        row = {
            "digest": self.digest,
            "organisation_id": metered.payer.organisation_id,
            "app_id": metered.payer.app_id,
            "kept_at": now,
            "expires_at": now + timedelta(seconds=self.seconds),
            "size": len(plain),
            "answer": self.call.services.vault.seal(plain, self._context),
        }
        try:
            # A long stream may outlive its app: then nobody would remove what it leaves.
            if self.call.app is None or not await self.call.services.directory.is_gone(self.call.app.id):
                await cache_rows.keep(self._database, row)
        except DatabaseUnavailable as exc:
            # The answer is there all the same.
            _log.warning("an answer could not be kept (%s)", type(exc).__name__)

    async def save_stream(
        self, pieces: AsyncGenerator[bytes, None], metered: MeteredCall
    ) -> AsyncGenerator[bytes, None]:
        """The pieces of a stream as they come; when it has ended by itself, what they make up is kept."""
        joined = CompletionAssembler(LARGEST)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if piece == DONE:
                    answer = joined.build_completion(metered.meter)
                    if answer is not None:
                        await self.save(answer, metered)
                else:
                    joined.add(piece)
                yield piece

    @property
    def _database(self) -> Database:
        call = self.call
        return call.services.database if call.app is None else call.stores.database

    @property
    def _context(self) -> str:
        """What a sealed answer is bound to: copied to another row it does not open."""
        return f"response_cache.answer:{self.digest}"


def build_entry(
    call: Call, reach: ProviderAccess, model: Model, request: Mapping[str, Any], wanted: CacheOptions
) -> CacheEntry:
    """Where the answer to a request is kept.

    The same for one payer, one app, one of its users, one model and one request, whatever the order of its fields.
    reach: the caller's. A model of its own server is another one when the server has moved.
    """
    paying = payer_of(call)
    user = call.caller.user_id if isinstance(call.caller, EndUser) else None
    metered = {name: value for name, value in request.items() if name not in _ASIDE}
    own = (server.api_base for server in reach.servers.values() if server.provider_name == model.provider)
    told = json.dumps((paying.organisation_id, paying.app_id, user, model.id, next(own, None), metered), sort_keys=True)
    # With a key of ours: whoever gets hold of the rows cannot try out what the requests may have been.
    digest = hmac.digest(call.services.vault.derive("response cache"), told.encode(), "sha256").hex()
    return CacheEntry(call, model, request, digest, wanted.get("ttl", _USUAL_SECONDS))


def _is_complete(answer: Mapping[str, Any]) -> bool:
    """Whether it is all that the model had to say, and no error."""
    if answer.get("error") is not None:
        return False
    choices, vectors = answer.get("choices"), answer.get("data")
    if not isinstance(choices, list):
        return isinstance(vectors, list) and bool(vectors)
    reasons = [choice.get("finish_reason") if isinstance(choice, dict) else None for choice in choices]
    return bool(reasons) and all(reason not in (None, "error") for reason in reasons)
