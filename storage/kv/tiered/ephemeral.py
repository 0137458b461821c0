"""The ephemeral tier, and the write locks under which workers change both tiers: a library of functions in Valkey."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from baobab.storage.kv import expiry, page
from baobab.storage.kv.engine import Usage
from baobab.storage.kv.errors import StoreClosed, StoreUnavailable
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.valkey import engine as plain
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.library import Library
from baobab.storage.valkey.pipeline import Pipeline

_CODE = (Path(plain.__file__).with_name("functions.lua"), Path(__file__).with_name("tiers.lua"))
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.016

Change = tuple[bytes | str | int, ...]


class LockRequest(NamedTuple):
    """What a write lock is for: some keys of a space or all of it, and the most that will be added to its totals."""

    space: str
    keys: tuple[str, ...]
    tokens: tuple[str, ...]
    alone: bool
    growth: Usage


class WriteLock(NamedTuple):
    """`expires_at` is in monotonic time; `now` is the time in milliseconds at which the rows were live.

    `usage` is the total of this tier; `pledged` is what other lock holders in this space may add to either tier.
    """

    holder: str
    expires_at: float
    now: int
    rows: dict[str, Row]
    token_results: dict[str, bytes]
    usage: Usage
    pledged: Usage
    doubtful: list[str]


class EphemeralTier:
    def __init__(self, url: str, clock: Callable[[], float], *, lease: float, timeout: float, queue_limit: int) -> None:
        self._clock = clock
        self._lease = lease
        self._pipeline = Pipeline(url, timeout=timeout, queue_limit=queue_limit)
        self._library = Library(self._pipeline, "tiers", "\n".join(file.read_text() for file in _CODE))
        worker_id = uuid.uuid4().hex
        self._names = (f"{worker_id}:{number}" for number in itertools.count())
        # By space, the lock holders whose outcome is unknown and must still be reported to the server, with their keys.
        self._unreported: dict[str, dict[str, tuple[str, ...]]] = {}
        self._is_open = False

    async def open(self) -> None:
        try:
            await self._pipeline.open()
            await self._library.load()
        except ValkeyUnavailable as exc:
            await self._pipeline.close()
            raise StoreUnavailable.because(exc) from exc
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        await self._pipeline.close()

    @property
    def now(self) -> int:
        return expiry.milliseconds(self._clock())

    async def acquire_lock(self, request: LockRequest) -> WriteLock:
        """Waits for the lock, first come, first served. Raises StoreUnavailable if others hold it for too long."""
        holder, pause = next(self._names), _FIRST_PAUSE
        # The holder may have crashed, and so may one that waits before us.
        deadline = time.monotonic() + 2 * self._lease + 1
        if request.space in self._unreported:
            await self._report_abandoned(request.space)
        while True:
            asked_at, now = time.monotonic(), self.now
            try:
                answer = await self._ask(
                    "enter",
                    request.space,
                    now,
                    holder,
                    int(self._lease * 1000),
                    int(request.alone),
                    *request.growth,
                    len(request.tokens),
                    *request.tokens,
                    *request.keys,
                )
            except StoreUnavailable:
                self._unreported.setdefault(request.space, {})[holder] = ()
                raise
            if answer:
                return self._build_lock(request, holder, asked_at, now, answer)
            if time.monotonic() > deadline:
                await self._abandon_holder(request.space, holder, ())
                raise StoreUnavailable("another worker holds the lock of these keys")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def apply_changes(self, space: str, lock: WriteLock, changes: Sequence[Change]) -> bool:
        """Makes all changes. If the lock has expired, it makes none and returns False."""
        flat = itertools.chain.from_iterable(changes)
        return bool(await self._ask("change", space, lock.now, lock.holder, *flat))

    async def finish_changes(self, request: LockRequest, lock: WriteLock, changes: Sequence[Change]) -> bool:
        """Makes the last changes and releases the lock. If the lock has expired, it makes none and returns False."""
        flat = itertools.chain.from_iterable(changes)
        return bool(
            await self._ask("finish", request.space, lock.now, lock.holder, len(request.keys), *request.keys, *flat)
        )

    def release_lock(self, request: LockRequest, lock: WriteLock, *, done: bool) -> None:
        """Releases the lock after all or none of the planned changes. Does not wait; if the message is lost, the lock
        expires.
        """
        release = asyncio.ensure_future(
            self._ask("leave", request.space, lock.now, lock.holder, int(done), *request.keys)
        )
        release.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def abandon_lock(self, request: LockRequest, lock: WriteLock) -> None:
        """Releases a lock with an unknown outcome, as soon as the server can be reached."""
        await self._abandon_holder(request.space, lock.holder, request.keys)

    async def find_row(self, space: str, key: str) -> tuple[Row | None, bytes | None]:
        """Returns the live row, and a mark that changes whenever the key moves to the durable tier."""
        raw, moved = await self._ask("look", space, self.now, key)
        return self._parse_live(raw), moved

    async def keys(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], list[str]]:
        """Returns the first keys, and keys that moved to the durable tier recently."""
        lowest, above = page.bounds(prefix, cursor)
        keys, moved = await self._ask("list", space, self.now, f"[{lowest}", f"({above}", limit)
        return [key.decode() for key in keys], [key.decode() for key in moved]

    async def rows(self, space: str, after: str | None, limit: int) -> tuple[dict[str, Row], list[str]]:
        """Returns the first keys with their rows, and keys that moved to the durable tier recently."""
        entries, moved = await self._ask("carry", space, self.now, "-" if after is None else f"({after}", limit)
        rows = ((key.decode(), self._parse_live(raw)) for key, raw in entries)
        return {key: row for key, row in rows if row is not None}, [key.decode() for key in moved]

    async def usage(self, space: str) -> Usage:
        return Usage(*await self._ask("usage", space, self.now, ""))

    async def sweep(self, space: str, limit: int) -> int:
        count: int = await self._ask("sweep", space, self.now, "", limit)
        return count

    async def list_doubtful(self, space: str) -> list[str]:
        return [key.decode() for key in await self._ask("doubtful", space)]

    async def has_result(self, space: str, token: str) -> bool:
        """Whether a result is stored here under the token."""
        return bool(await self._send("EXISTS", f"kv:{{{space}}}:kept:{token}"))

    async def spaces(self, part: str) -> set[str]:
        """Returns the spaces that have a `part`, by scanning the names of all keys of the server."""
        names: set[str] = set()
        cursor = b"0"
        while True:
            cursor, keys = await self._send("SCAN", cursor, "MATCH", f"kv:{{*}}:{part}", "COUNT", 1000)
            names.update(name.decode().removeprefix("kv:{").removesuffix(f"}}:{part}") for name in keys)
            if cursor == b"0":
                return names

    async def check(self) -> None:
        # The function may write, so a read-only server refuses it.
        await self._ask("usage", "", self.now, "")

    async def _abandon_holder(self, space: str, holder: str, keys: tuple[str, ...]) -> None:
        self._unreported.setdefault(space, {})[holder] = keys
        with contextlib.suppress(StoreUnavailable):
            await self._report_abandoned(space)

    async def _report_abandoned(self, space: str) -> None:
        unreported = self._unreported[space]
        for holder, keys in tuple(unreported.items()):
            await self._ask("doubt", space, self.now, holder, *keys)
            unreported.pop(holder, None)
        if not unreported:
            self._unreported.pop(space, None)

    def _build_lock(self, request: LockRequest, holder: str, asked_at: float, now: int, answer: list[Any]) -> WriteLock:
        keys, size, more_keys, more_bytes, token_results, entries, doubtful = answer
        rows = ((key, self._parse_live(raw, now)) for key, raw in zip(request.keys, entries, strict=True))
        return WriteLock(
            holder,
            asked_at + self._lease,
            now,
            {key: row for key, row in rows if row is not None},
            {token: text for token, text in zip(request.tokens, token_results, strict=True) if text is not None},
            Usage(keys, size),
            Usage(more_keys, more_bytes),
            [key.decode() for key in doubtful],
        )

    def _parse_live(self, raw: bytes | None, now: int | None = None) -> Row | None:
        if raw is None:
            return None
        _, deadline, window, value = raw.split(b":", 3)
        expires = int(deadline) if deadline else None
        if not expiry.is_live(expires, self.now if now is None else now):
            return None
        return Row(value, expires, int(window) if window else None)

    async def _ask(self, function: str, space: str, *arguments: bytes | str | int) -> Any:
        self._require_open()
        try:
            return await self._library.call(function, f"kv:{{{space}}}", *arguments)
        except ValkeyUnavailable as exc:
            raise StoreUnavailable.because(exc) from exc

    async def _send(self, *command: bytes | str | int) -> Any:
        self._require_open()
        try:
            return await self._pipeline.send(*command)
        except ValkeyUnavailable as exc:
            raise StoreUnavailable.because(exc) from exc

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreClosed
