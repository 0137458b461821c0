"""Sessions of the protocols before 2026: an id that tells one client from another, and the calls it has on the way.

Nothing is kept of a session: its id is sealed, so that every worker knows it for the caller it was given to. A call
is known to the worker that makes it; a cancellation that comes to another one is passed on as a notice.
"""

import asyncio
import contextlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Iterator
from hashlib import sha256

from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.services import Services

_NONCE_BYTES = 16
_LONGEST = 200
_NOTICE = "mcp call"
_MOST_PASSED_ON = 20
"""Cancellations that a worker passes on in a second."""


class CallCancelled(BaobabError):
    code = "CALL_CANCELLED"
    status = 499
    summary = "The client has cancelled this call; nothing of it was kept."
    remediation = "Make the call again if it is still wanted."


class Sessions:
    def __init__(self, services: Services) -> None:
        self._key = services.vault.derive("mcp session")
        self._services = services
        self._running: dict[str, asyncio.Task[object]] = {}
        self._cancelled: set[str] = set()
        self._passed_on: deque[float] = deque(maxlen=_MOST_PASSED_ON)
        services.notices.subscribe(_NOTICE, self._on_cancel_notice)

    def create_session(self, caller: Caller) -> str:
        """The id of a new session of a caller."""
        nonce = secrets.token_hex(_NONCE_BYTES)
        return f"{nonce}.{self._seal(nonce, caller)}"

    def is_session_of(self, session_id: str, caller: Caller) -> bool:
        """Whether a session was begun by this caller, here or on another worker."""
        nonce, _, seal = session_id[:_LONGEST].partition(".")
        return hmac.compare_digest(seal.encode(), self._seal(nonce, caller).encode())

    @contextlib.contextmanager
    def track_call(self, session_id: str | None, request_id: object) -> Iterator[None]:
        """The time in which a session's call may be cancelled; CallCancelled where it was."""
        task = asyncio.current_task()
        if session_id is None or task is None:
            yield
            return
        name = _call_digest(session_id, request_id)
        self._running[name] = task
        try:
            yield
        except asyncio.CancelledError:
            if name not in self._cancelled:
                raise
            task.uncancel()
            raise CallCancelled from None
        finally:
            self._cancelled.discard(name)
            if self._running.get(name) is task:
                del self._running[name]

    async def cancel_call(self, session_id: str, request_id: object) -> None:
        """Cancel a call of a session, here or on the worker that makes it."""
        name, now = _call_digest(session_id, request_id), time.monotonic()
        if self._cancel_local(name):
            return
        # A client may send any number of these for calls that there are not.
        if len(self._passed_on) == _MOST_PASSED_ON and now - self._passed_on[0] < 1:
            return
        self._passed_on.append(now)
        async with self._services.database.writing_unit() as unit:
            await self._services.notices.publish(unit, _NOTICE, name)

    def _on_cancel_notice(self, name: str) -> None:
        self._cancel_local(name)

    def _cancel_local(self, name: str) -> bool:
        """Cancel a call, where this worker makes it."""
        task = self._running.get(name)
        if task is not None and name not in self._cancelled:
            self._cancelled.add(name)
            task.cancel()
        return task is not None

    def _seal(self, nonce: str, caller: Caller) -> str:
        # By account where there is one: a client whose token is exchanged for a new one goes on with its session.
        whose = f"{nonce}:{getattr(caller, 'account_id', None) or f'{caller.actor}:{caller.actor_id}'}"
        return hmac.new(self._key, whose.encode(), sha256).hexdigest()


def _call_digest(session_id: str, request_id: object) -> str:
    """What a call is known by: 7 and "7" are two. A digest, for other processes read it."""
    return sha256(f"{session_id}:{request_id!r}".encode()).hexdigest()
