"""Limits how many event streams may be open, and closes a stream whose reader loses access."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass

from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.notices import Notices
from baobab.tools.core.auth.callers import Anonymous, Caller, EndUser
from baobab.tools.core.auth.user_sessions import USER_TOPIC, user_subject
from baobab.tools.core.errors import BaobabError, TooManyStreams
from baobab.tools.core.limits.rate_limits import network
from baobab.tools.core.stream import Places, StreamEnded
from baobab.tools.core.tenancy import current_tenant

RECHECK_SECONDS = 14.0
"""Streams send something every 15 seconds, so that access is checked again within 30."""
REFUSED, TRY_LATER = 1008, 1013
"""Close codes of a WebSocket: its reader has lost access, or should come back later."""
Check = Callable[[], Awaitable[None]]
"""Raises if the reader of a stream has lost access."""


@dataclass(frozen=True)
class StreamLimits:
    """The most streams that may be open in a worker: in all, of one subject such as a run, and of one caller (without a
    credential, of one network). Once half of all are in use, an organisation that has `of_tenant` of them gets no more.
    """

    in_all: int = 2000
    of_tenant: int = 100
    of_subject: int = 64
    of_caller: int = 32


class OpenStreams:
    """Counts the open streams of one worker, and knows which of them a change of a user or an app may end."""

    def __init__(self, notices: Notices, limits: StreamLimits | None = None) -> None:
        self._limits = limits or StreamLimits()
        self._open: Counter[tuple[str, str]] = Counter()
        self._change_events: dict[str, set[asyncio.Event]] = {}
        notices.subscribe(USER_TOPIC, self._note_change)
        notices.subscribe("app", lambda app_id: self._note_change(_app_subject(app_id)))

    @contextlib.contextmanager
    def hold_place(
        self, caller: Caller, address: str, subject: str, own_places: Places | None = None
    ) -> Iterator[None]:
        """Counts a stream while it is open. Raises TooManyStreams, or the refusal of the given places."""
        limits = own_places or self._limits
        refusal = TooManyStreams if own_places is None else own_places.refusal
        owner = network(address) if isinstance(caller, Anonymous) else caller.actor_id or ""
        tenant = current_tenant()
        is_crowded = self._open["all", ""] >= self._limits.in_all // 2
        places = {
            ("tenant", tenant): self._limits.of_tenant if is_crowded else self._limits.in_all,
            ("all", ""): self._limits.in_all,
            ("run", subject): limits.of_subject,
            ("caller", owner): limits.of_caller,
        }
        for key, limit in places.items():
            if self._open[key] >= limit:
                raise refusal(details={"limit": limit, "of": key[0]})
        self._open.update(places.keys())
        try:
            yield
        finally:
            self._open.subtract(places.keys())
            for key in places:
                if not self._open[key]:
                    del self._open[key]

    async def stream_while_allowed(
        self, pieces: AsyncGenerator[bytes, None], caller: Caller, check: Check, app_id: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yields the pieces until `check` raises, then raises StreamEnded. `check` is called now and then and, for a
        user of an app, as soon as one of the user's sessions ends anywhere.

        app_id: an app, any change of which is a reason to check.
        """
        subjects = [user_subject(caller.app_id, caller.user_id)] if isinstance(caller, EndUser) else []
        subjects += [] if app_id is None else [_app_subject(app_id)]
        if not subjects:
            async with contextlib.aclosing(stream_while_allowed(pieces, check)) as checked_pieces:
                async for piece in checked_pieces:
                    yield piece
            return
        change_event = asyncio.Event()
        for subject in subjects:
            self._change_events.setdefault(subject, set()).add(change_event)
        try:
            ending_pieces = _stream_until_refused(stream_while_allowed(pieces, check), change_event, check)
            async with contextlib.aclosing(ending_pieces) as checked_pieces:
                async for piece in checked_pieces:
                    yield piece
        finally:
            for subject in subjects:
                self._change_events[subject].discard(change_event)
                if not self._change_events[subject]:
                    del self._change_events[subject]

    def _note_change(self, subject: str) -> None:
        for change_event in self._change_events.get(subject, ()):
            change_event.set()


def _app_subject(app_id: str) -> str:
    return f"app:{app_id}"


async def _check_access(check: Check) -> None:
    """Raises StreamEnded if the check fails, even by an error of its own: the client can connect again."""
    try:
        await check()
    except BaobabError as exc:
        raise StreamEnded(close_code(exc), exc.code) from exc
    except DatabaseUnavailable as exc:
        raise StreamEnded(TRY_LATER, "the database does not answer") from exc


def close_code(error: BaobabError) -> int:
    """Returns the code that closes a WebSocket which is refused with this error."""
    return TRY_LATER if error.status in (429, 503) else REFUSED


async def stream_while_allowed(pieces: AsyncGenerator[bytes, None], check: Check) -> AsyncGenerator[bytes, None]:
    """Yields the pieces until `check` raises. It is called before a piece if the last check is long enough ago."""
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            if loop.time() - checked_at >= RECHECK_SECONDS:
                await _check_access(check)
                checked_at = loop.time()
            yield piece


async def _stream_until_refused(
    pieces: AsyncGenerator[bytes, None], change_event: asyncio.Event, check: Check
) -> AsyncGenerator[bytes, None]:
    """Yields the pieces. Whenever `change_event` is set, `check` is called, and ends the stream if it raises."""
    change = asyncio.create_task(change_event.wait())
    reading: asyncio.Task[bytes | None] | None = None
    try:
        while True:
            reading = reading or asyncio.create_task(_read_next(pieces))
            await asyncio.wait((reading, change), return_when=asyncio.FIRST_COMPLETED)
            if change.done():
                change_event.clear()
                change = asyncio.create_task(change_event.wait())
                await _check_access(check)
            if reading.done():
                piece = reading.result()
                if piece is None:
                    return
                reading = None
                yield piece
    finally:
        tasks = [task for task in (reading, change) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await pieces.aclose()


async def _read_next(pieces: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(pieces, None)
