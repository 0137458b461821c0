"""Sessions of the protocols before 2026: an id that distinguishes clients, and the calls that each has in progress.

Sessions are not stored. The id is sealed, so that every worker can check that it belongs to the caller. Only the worker
that runs a call knows it; a cancellation that reaches another worker is forwarded as a notice.
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
"""The most cancellations that a worker forwards per second."""


class CallCancelled(BaobabError):
    code = "CALL_CANCELLED"
    status = 499
    summary = "The client has cancelled this call; the call stored nothing."
    remediation = "Make the call again if you still want it."


class Sessions:
    def __init__(self, services: Services) -> None:
        self._key = services.vault.derive("mcp session")
        self._services = services
        self._running: dict[str, asyncio.Task[object]] = {}
        self._cancelled_names: set[str] = set()
        self._passed_on: deque[float] = deque(maxlen=_MOST_PASSED_ON)
        services.notices.subscribe(_NOTICE, self._on_cancel_notice)

    def create_session(self, caller: Caller) -> str:
        """Creates a session for a caller and returns its id."""
        nonce = secrets.token_hex(_NONCE_BYTES)
        return f"{nonce}.{self._seal(nonce, caller)}"

    def is_session_of(self, session_id: str, caller: Caller) -> bool:
        """Returns whether a session was created for this caller, here or on another worker."""
        nonce, _, seal = session_id[:_LONGEST].partition(".")
        return hmac.compare_digest(seal.encode(), self._seal(nonce, caller).encode())

    @contextlib.contextmanager
    def track_call(self, session_id: str | None, request_id: object) -> Iterator[None]:
        """Makes a call of a session cancellable while the block runs. Raises CallCancelled if it was cancelled."""
        task = asyncio.current_task()
        if session_id is None or task is None:
            yield
            return
        name = _call_digest(session_id, request_id)
        self._running[name] = task
        try:
            yield
        except asyncio.CancelledError:
            if name not in self._cancelled_names:
                raise
            task.uncancel()
            raise CallCancelled from None
        finally:
            self._cancelled_names.discard(name)
            if self._running.get(name) is task:
                del self._running[name]

    async def cancel_call(self, session_id: str, request_id: object) -> None:
        """Cancels a call of a session, here or on the worker that runs it."""
        name, now = _call_digest(session_id, request_id), time.monotonic()
        if self._cancel_local(name):
            return
        # Limited, because a client may send any number of cancellations for calls that do not exist.
        if len(self._passed_on) == _MOST_PASSED_ON and now - self._passed_on[0] < 1:
            return
        self._passed_on.append(now)
        async with self._services.database.writing_unit(lock=None) as unit:
            await self._services.notices.publish(unit, _NOTICE, name)

    def _on_cancel_notice(self, name: str) -> None:
        self._cancel_local(name)

    def _cancel_local(self, name: str) -> bool:
        """Cancels a call if this worker runs it; returns whether it does."""
        task = self._running.get(name)
        if task is not None and name not in self._cancelled_names:
            self._cancelled_names.add(name)
            task.cancel()
        return task is not None

    def _seal(self, nonce: str, caller: Caller) -> str:
        # By account if there is one, so that the session survives a refresh of the client's token.
        content = f"{nonce}:{getattr(caller, 'account_id', None) or f'{caller.actor}:{caller.actor_id}'}"
        return hmac.new(self._key, content.encode(), sha256).hexdigest()


def _call_digest(session_id: str, request_id: object) -> str:
    """Returns the key of a call, in which 7 and "7" differ. A digest, because other processes read it."""
    return sha256(f"{session_id}:{request_id!r}".encode()).hexdigest()
