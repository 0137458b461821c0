"""The engine on a Valkey server. Every write is one atomic function there, so that any number of processes can share
it.

Both tiers are in the server, and as durable as its settings make them: with `appendonly yes` and `appendfsync always`
an acknowledged write survives a power failure; with `everysec` up to a second of writes may be lost. The server must
not evict (`maxmemory-policy noeviction`). A write whose connection broke before its reply, or that took longer than the
timeout, raises StoreUnavailable although it may have been made; repeat it through `for_attempt` if that matters.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from baobab.storage.kv import expiry, json_equality, page
from baobab.storage.kv.engine import ABSENT, Absent, Delete, Entry, Get, Op, OpResult, Quota, Set, Tier, Usage
from baobab.storage.kv.errors import (
    IntegerOverflow,
    KeysExhausted,
    KvError,
    NotAnInteger,
    SpaceFrozen,
    StorageFull,
    StoreClosed,
    StoreUnavailable,
)
from baobab.storage.kv.idempotency import attempt_tokens
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.library import Library
from baobab.storage.valkey.pipeline import Pipeline
from baobab.storage.valkey.scan import scan_names

_CODE = Path(__file__).with_name("functions.lua")
_TIERS = {Tier.DURABLE: "d", Tier.EPHEMERAL: "e"}
_REFUSALS: dict[bytes, type[KvError]] = {
    kind.__name__.encode(): kind for kind in (NotAnInteger, IntegerOverflow, KeysExhausted, StorageFull, SpaceFrozen)
}

_FROZEN = SpaceFrozen.__name__.encode()
# Five arguments each, of some eight thousand that a function can unpack.
_LARGEST_LOAD = 500


_log = logging.getLogger(__name__)


class _Entry(NamedTuple):
    value: bytes
    expires: int | None


class ValkeyEngine:
    """Belongs to the event loop that opens it. Time is this process's clock, in step with those of other processes."""

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.time,
        *,
        timeout: float = 2.0,
        queue_limit: int = 10_000,
    ) -> None:
        self._clock = clock
        self._pipeline = Pipeline(url, timeout=timeout, queue_limit=queue_limit)
        self._library = Library(self._pipeline, "kv", _CODE.read_text())
        self._is_open = False
        self._tokens: Iterator[str] | None = None

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

    def for_attempt(self, token: str) -> Self:
        view = copy.copy(self)
        view._tokens = attempt_tokens(token)  # noqa: SLF001 - a copy of ourselves
        return view

    async def has_written(self, space: str, token: str) -> bool:
        return bool(await self._send("EXISTS", f"kv:{{{space}}}:once:{next(attempt_tokens(token))}"))

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        if touch:
            value: bytes | None = await self._ask("touch", space, key)
            return value
        entry = await self._find_entry(space, key)
        return None if entry is None else entry.value

    async def ttl(self, space: str, key: str) -> int | Absent | None:
        entry = await self._find_entry(space, key)
        if entry is None:
            return ABSENT
        return None if entry.expires is None else expiry.seconds_left(entry.expires, self._now)

    async def exists(self, space: str, key: str) -> bool:
        return await self._find_entry(space, key) is not None

    async def put(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> None:
        _check_answer(
            await self._write(
                "put", space, key, value, _TIERS[tier], *self._expiry_arguments(ttl), *_encode_quota(quota)
            )
        )

    async def delete(self, space: str, key: str) -> int:
        count: int = _check_answer(await self._write("delete", space, key))
        return count

    async def incr(self, space: str, key: str, by: int, ttl: int | None, quota: Quota) -> int:
        return int(
            _check_answer(
                await self._write("incr", space, key, by, *self._expiry_arguments(ttl), *_encode_quota(quota))
            )
        )

    async def setnx(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> bool:
        answer = await self._write(
            "setnx", space, key, value, _TIERS[tier], *self._expiry_arguments(ttl), *_encode_quota(quota)
        )
        return bool(_check_answer(answer))

    async def cas(
        self,
        space: str,
        key: str,
        expected: bytes,
        next: bytes,  # noqa: A002 - the word of the API
        ttl: int | None,
        quota: Quota,
    ) -> bool:
        token = self._next_token()
        # Usually the stored bytes are the expected ones; otherwise the answer holds the stored value.
        current = None if json_equality.matches(None, expected) else expected
        matches = True
        while True:
            arguments = (
                int(current is not None),
                current or b"",
                int(matches),
                next,
                *self._expiry_arguments(ttl),
                *_encode_quota(quota),
            )
            answer = await self._ask("cas", space, key, *arguments, token=token)
            if not (isinstance(answer, list) and answer[0] == b"Changed"):
                return bool(_check_answer(answer))
            current = answer[1] if len(answer) > 1 else None
            matches = json_equality.matches(current, expected)
            if not matches and not token:
                return False

    async def expire(self, space: str, key: str, ttl: int | None) -> bool:
        if ttl is not None and ttl <= 0:
            return bool(await self.delete(space, key))
        return bool(_check_answer(await self._write("expire", space, key, *self._expiry_arguments(ttl))))

    async def batch(self, space: str, ops: Sequence[Op], quota: Quota) -> list[OpResult]:
        arguments: list[bytes | str | int] = []
        for op in ops:
            match op:
                case Get(key):
                    arguments += ("get", key)
                case Delete(key):
                    arguments += ("delete", key)
                case Set(key, value, ttl):
                    arguments += ("set", key, value, *self._expiry_arguments(ttl))
        answers = await self._write("batch", space, *_encode_quota(quota), *arguments)
        if answers == [_FROZEN]:
            raise SpaceFrozen
        return [_parse_result(op, answer) for op, answer in zip(ops, answers, strict=True)]

    async def scan(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        lowest, above = page.bounds(prefix, cursor)
        keys = await self._ask("scan", space, f"[{lowest}", f"({above}", limit + 1)
        return page.cut([key.decode() for key in keys], limit)

    async def usage(self, space: str) -> Usage:
        return Usage(*await self._ask("usage", space))

    async def flush(self, space: str) -> int:
        live: int = _check_answer(await self._write("flush", space))
        return live

    async def sweep(self, limit: int = 1000) -> int:
        count: int = 0
        async for name in scan_names(self._send, "kv:{*}:expiries"):
            space = name.removeprefix("kv:{").removesuffix("}:expiries")
            count += await self._ask("sweep", space, limit - count)
            if count >= limit:
                break
        return count

    async def spaces(self, after: str | None, limit: int) -> list[str]:
        """Scans the names of all keys of the server each time."""
        names = {
            name.removeprefix("kv:{").removesuffix("}:entries")
            async for name in scan_names(self._send, "kv:{*}:entries")
        }
        live: list[str] = []
        for space in sorted(space for space in names if space > (after or "")):
            if len(live) == limit:
                break
            if (await self.usage(space)).keys:
                live.append(space)
        return live

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        raw_entries = await self._ask("export", space, "-" if after is None else f"({after}", limit)
        return [_parse_entry(key.decode(), raw) for key, raw in raw_entries]

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        for start in range(0, len(entries), _LARGEST_LOAD):
            arguments: list[bytes | str | int] = []
            for key, value, tier, expires, window in entries[start : start + _LARGEST_LOAD]:
                arguments += (key, value, _TIERS[tier], _encode_optional(expires), _encode_optional(window))
            await self._ask("load", space, *arguments)

    async def freeze(self, space: str) -> None:
        await self._ask("freeze", space)

    async def thaw(self, space: str) -> None:
        await self._ask("thaw", space)

    async def erase(self, space: str) -> None:
        await self._ask("erase", space)

    async def check(self) -> None:
        # The function may write, so a read-only server refuses it.
        await self._ask("usage", "")

    async def warn_of_loss(self) -> None:
        """Logs which of the server's settings would lose entries."""
        try:
            reply = await self._pipeline.send("CONFIG", "GET", "appendonly", "save", "maxmemory-policy")
        except ValkeyUnavailable:
            # Managed servers refuse the question; what they store is set in their console.
            return
        server_settings = dict(zip(reply[::2], reply[1::2], strict=True))
        if server_settings.get(b"appendonly") == b"no" and server_settings.get(b"save") == b"":
            _log.warning(
                "kv: Valkey stores nothing on disk: without appendonly or save, its restart deletes the key-value store"
            )
        if server_settings.get(b"maxmemory-policy", b"noeviction") != b"noeviction":
            _log.warning("kv: Valkey evicts keys when it is full; set maxmemory-policy to noeviction")

    @property
    def _now(self) -> int:
        return expiry.milliseconds(self._clock())

    def _expiry_arguments(self, ttl: int | None) -> tuple[int | str, int | str]:
        window = expiry.window(ttl)
        deadline = expiry.deadline(self._now, window)
        return _encode_optional(deadline), _encode_optional(window)

    def _next_token(self) -> str:
        return "" if self._tokens is None else next(self._tokens)

    async def _find_entry(self, space: str, key: str) -> _Entry | None:
        raw = await self._send("HGET", f"kv:{{{space}}}:entries", key)
        if raw is None:
            return None
        _, deadline, _, value = raw.split(b":", 3)
        expires = int(deadline) if deadline else None
        return _Entry(value, expires) if expiry.is_live(expires, self._now) else None

    async def _write(self, function: str, space: str, *arguments: bytes | str | int) -> Any:
        return await self._ask(function, space, *arguments, token=self._next_token())

    async def _ask(self, function: str, space: str, *arguments: bytes | str | int, token: str = "") -> Any:
        self._require_open()
        try:
            return await self._library.call(function, f"kv:{{{space}}}", self._now, token, *arguments)
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


def _parse_entry(key: str, raw: bytes) -> Entry:
    tier, expires, window, value = raw.split(b":", 3)
    return Entry(
        key,
        value,
        Tier.DURABLE if tier == b"d" else Tier.EPHEMERAL,
        int(expires) if expires else None,
        int(window) if window else None,
    )


def _encode_optional(number: int | None) -> int | str:
    return "" if number is None else number


def _encode_quota(quota: Quota) -> tuple[int | str, int | str]:
    return _encode_optional(quota.max_keys), _encode_optional(quota.max_bytes)


def _parse_refusal(answer: list[Any]) -> KvError:
    name, *numbers = answer
    return _REFUSALS[name](*numbers)


def _check_answer(answer: Any) -> Any:
    if isinstance(answer, list):
        raise _parse_refusal(answer)
    return answer


def _parse_result(op: Op, answer: Any) -> OpResult:
    match op:
        case Get():
            return answer[0] if answer else None
        case Set():
            return _parse_refusal(answer) if isinstance(answer, list) else None
        case Delete():
            count: int = answer
            return count
