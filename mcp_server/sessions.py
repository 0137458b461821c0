"""Sessions of the protocols before 2026: an id that tells one client from another, and the calls it has on the way.

Nothing is kept of a session: its id is sealed, so that every worker knows it for the caller it was given to. A call
is known to the worker that makes it.
"""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Hashable, Iterator
from hashlib import sha256

from baobab.storage.secrets import Vault
from baobab.tools.callers import Caller
from baobab.tools.errors import BaobabError

_NONCE_BYTES = 16
_LONGEST = 200


class CallCancelled(BaobabError):
    code = "CALL_CANCELLED"
    status = 499
    summary = "The client has cancelled this call; nothing of it was kept."
    remediation = "Make the call again if it is still wanted."


class Sessions:
    def __init__(self, vault: Vault) -> None:
        self._key = vault.derive("mcp session")
        self._running: dict[Hashable, asyncio.Task[object]] = {}
        self._cancelled: set[Hashable] = set()

    def begin(self, caller: Caller) -> str:
        """The id of a new session of a caller."""
        nonce = secrets.token_hex(_NONCE_BYTES)
        return f"{nonce}.{self._seal(nonce, caller)}"

    def belongs(self, session_id: str, caller: Caller) -> bool:
        """Whether a session was begun by this caller, here or on another worker."""
        nonce, _, seal = session_id[:_LONGEST].partition(".")
        return hmac.compare_digest(seal.encode(), self._seal(nonce, caller).encode())

    @contextlib.contextmanager
    def running(self, session_id: str | None, request_id: object) -> Iterator[None]:
        """The time in which a session's call may be cancelled; CallCancelled where it was."""
        task = asyncio.current_task()
        if session_id is None or task is None:
            yield
            return
        name = (session_id, type(request_id), request_id)
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

    def cancel(self, session_id: str, request_id: object) -> None:
        """Cancel a call of a session, where this worker makes it."""
        name = (session_id, type(request_id), request_id)
        task = self._running.get(name)
        if task is not None and name not in self._cancelled:
            self._cancelled.add(name)
            task.cancel()

    def _seal(self, nonce: str, caller: Caller) -> str:
        # By account where there is one: a client whose token is exchanged for a new one goes on with its session.
        whose = f"{nonce}:{getattr(caller, 'account_id', None) or f'{caller.actor}:{caller.actor_id}'}"
        return hmac.new(self._key, whose.encode(), sha256).hexdigest()
