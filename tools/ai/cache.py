"""Kept answers: the very same request is answered again without asking a model, where its caller wants that."""

import contextlib
import hmac
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, with_config
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict

from baobab.runtime.gateway.events import DONE
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.reach import Reach
from baobab.storage.database import Database, DatabaseUnavailable
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.ai import cache_rows
from baobab.tools.ai.asking import Asked, payer
from baobab.tools.ai.pieces import Joined
from baobab.tools.ai.spans import started
from baobab.tools.core.auth.callers import EndUser
from baobab.tools.core.call import Call

LARGEST = 2**20
"""Bytes of an answer that is kept."""
_USUAL_SECONDS, _MOST_SECONDS = 3600, 604_800
# How an answer is sent, and not what it says.
_ASIDE = frozenset(("stream", "stream_options"))

_log = logging.getLogger(__name__)


@with_config(ConfigDict(extra="forbid", strict=True))
class Wanted(TypedDict):
    ttl: NotRequired[
        Annotated[int, Field(ge=1, le=_MOST_SECONDS, description="Seconds that an answer is kept; 3600 if left out.")]
    ]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the answer to one request is kept.

    Two calls that come at once may both find it empty: each asks the model, and the later answer stays.
    """

    call: Call
    model: Model
    request: Mapping[str, Any]
    digest: str
    seconds: int

    async def found(self) -> dict[str, Any] | None:
        """The kept answer. A database that does not answer holds none."""
        try:
            sealed = await cache_rows.find(self._database, self.digest, self.call.now)
            if sealed is None:
                return None
            answer: dict[str, Any] = from_json(self.call.services.vault.open(sealed, self._context))
        except (DatabaseUnavailable, SecretUnreadable) as exc:
            _log.warning("a kept answer could not be read (%s)", type(exc).__name__)
            return None
        traced = started(self.call, self.model, self.request, None, cache="hit")
        if traced is not None:
            traced.hit(answer)
        return answer

    async def keep(self, answer: Mapping[str, Any], asked: Asked) -> None:
        """Keep a whole answer of the model that was meant: another's stands in for it now, and not for days."""
        if asked.model.id != self.model.id or not _ended(answer):
            return
        plain = to_json(answer)
        if len(plain) > LARGEST:
            return
        now = self.call.now
        row = {
            "digest": self.digest,
            "organisation_id": asked.payer.organisation_id,
            "app_id": asked.payer.app_id,
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

    async def keeping(self, pieces: AsyncGenerator[bytes, None], asked: Asked) -> AsyncGenerator[bytes, None]:
        """The pieces of a stream as they come; when it has ended by itself, what they make up is kept."""
        joined = Joined(LARGEST)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if piece == DONE:
                    answer = joined.whole(asked.outcome)
                    if answer is not None:
                        await self.keep(answer, asked)
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


def place(call: Call, reach: Reach, model: Model, request: Mapping[str, Any], wanted: Wanted) -> Place:
    """Where the answer to a request is kept.

    The same for one payer, one app, one of its users, one model and one request, whatever the order of its fields.
    reach: the caller's. A model of its own server is another one when the server has moved.
    """
    paying = payer(call)
    user = call.caller.user_id if isinstance(call.caller, EndUser) else None
    asked = {name: value for name, value in request.items() if name not in _ASIDE}
    own = (server.api_base for server in reach.servers.values() if server.provider_name == model.provider)
    told = json.dumps((paying.organisation_id, paying.app_id, user, model.id, next(own, None), asked), sort_keys=True)
    # With a key of ours: whoever gets hold of the rows cannot try out what the requests may have been.
    digest = hmac.digest(call.services.vault.derive("response cache"), told.encode(), "sha256").hex()
    return Place(call, model, request, digest, wanted.get("ttl", _USUAL_SECONDS))


def _ended(answer: Mapping[str, Any]) -> bool:
    """Whether it is all that the model had to say, and no error."""
    if answer.get("error") is not None:
        return False
    choices, vectors = answer.get("choices"), answer.get("data")
    if not isinstance(choices, list):
        return isinstance(vectors, list) and bool(vectors)
    reasons = [choice.get("finish_reason") if isinstance(choice, dict) else None for choice in choices]
    return bool(reasons) and all(reason not in (None, "error") for reason in reasons)
