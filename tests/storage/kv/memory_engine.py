"""An engine in plain dictionaries: the reference for the other engines, and a store for tests of what uses one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from baobab.storage.kv import expiry, json_equality, operations
from baobab.storage.kv.engine import ABSENT, Absent, Delete, Entry, Get, Op, OpResult, Quota, Set, Tier, Usage
from baobab.storage.kv.errors import KeysExhausted, KvError, SpaceFrozen, StorageFull, StoreClosed
from baobab.storage.kv.idempotency import attempt_tokens

_WRITES = frozenset(("put", "delete", "incr", "setnx", "cas", "expire", "batch", "flush"))


class _AttemptView:
    def __init__(self, engine: MemoryEngine, results: dict[str, Any], token: str) -> None:
        self._engine = engine
        self._results = results
        self._tokens = attempt_tokens(token)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)
        return self._make_idempotent(method) if name in _WRITES else method

    def _make_idempotent(self, method: Any) -> Any:
        async def write_once(*arguments: Any) -> Any:
            token = next(self._tokens)
            if token not in self._results:
                self._results[token] = await method(*arguments)
            return self._results[token]

        return write_once


class MemoryEngine:
    """Each key has one entry with its tier. No method awaits, so each is atomic on its event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._spaces: dict[str, dict[str, Entry]] = {}
        self._frozen_spaces: set[str] = set()
        self._is_open = False
        self._results: dict[str, Any] = {}

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    def for_attempt(self, token: str) -> Self:
        return cast(Self, _AttemptView(self, self._results, token))

    async def has_written(self, space: str, token: str) -> bool:
        return next(attempt_tokens(token)) in self._results

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        entry = self._live_entries(space).get(key)
        if entry is None:
            return None
        if touch and entry.tier is Tier.DURABLE and entry.window is not None and space not in self._frozen_spaces:
            self._spaces[space][key] = self._build_entry(key, entry.value, entry.window, entry.tier)
        return entry.value

    async def ttl(self, space: str, key: str) -> int | Absent | None:
        entry = self._live_entries(space).get(key)
        if entry is None:
            return ABSENT
        return None if entry.expires is None else expiry.seconds_left(entry.expires, self._now)

    async def exists(self, space: str, key: str) -> bool:
        return key in self._live_entries(space)

    async def put(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> None:
        self._require_thawed(space)
        self._store(space, self._build_entry(key, value, ttl, tier), quota)

    async def delete(self, space: str, key: str) -> int:
        self._require_thawed(space)
        return 0 if self._live_entries(space).pop(key, None) is None else 1

    async def incr(self, space: str, key: str, by: int, ttl: int | None, quota: Quota) -> int:
        self._require_thawed(space)
        entry = self._live_entries(space).get(key)
        total = operations.add_to_counter(None if entry is None else entry.value, by)
        self._replace_value(space, key, str(total).encode(), ttl, quota)
        return total

    async def setnx(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> bool:
        self._require_thawed(space)
        if key in self._live_entries(space):
            return False
        await self.put(space, key, value, ttl, tier, quota)
        return True

    async def cas(
        self,
        space: str,
        key: str,
        expected: bytes,
        next: bytes,  # noqa: A002 - the word of the API
        ttl: int | None,
        quota: Quota,
    ) -> bool:
        self._require_thawed(space)
        entry = self._live_entries(space).get(key)
        if not json_equality.matches(None if entry is None else entry.value, expected):
            return False
        self._replace_value(space, key, next, ttl, quota)
        return True

    async def expire(self, space: str, key: str, ttl: int | None) -> bool:
        self._require_thawed(space)
        entries = self._live_entries(space)
        if key not in entries:
            return False
        if ttl is not None and ttl <= 0:
            del entries[key]
        else:
            entries[key] = self._build_entry(key, entries[key].value, ttl, entries[key].tier)
        return True

    async def batch(self, space: str, ops: Sequence[Op], quota: Quota) -> list[OpResult]:
        if not all(isinstance(op, Get) for op in ops):
            self._require_thawed(space)
        results: list[OpResult] = []
        for op in ops:
            match op:
                case Get(key):
                    results.append(await self.get(space, key))
                case Delete(key):
                    results.append(await self.delete(space, key))
                case Set(key, value, ttl):
                    try:
                        await self.put(space, key, value, ttl, Tier.DURABLE, quota)
                    except KvError as refusal:
                        results.append(refusal)
                    else:
                        results.append(None)
        return results

    async def scan(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        after = "" if cursor is None else cursor
        keys = sorted(key for key in self._live_entries(space) if key.startswith(prefix) and key > after)
        return keys[:limit], keys[limit - 1] if len(keys) > limit else None

    async def usage(self, space: str) -> Usage:
        entries = self._live_entries(space)
        return Usage(len(entries), sum(len(key) + len(entry.value) for key, entry in entries.items()))

    async def flush(self, space: str) -> int:
        self._require_thawed(space)
        live = len(self._live_entries(space))
        self._spaces.pop(space)
        return live

    async def sweep(self, limit: int = 1000) -> int:
        self._require_open()
        now = self._now
        expired_keys = [
            (space, key)
            for space, entries in self._spaces.items()
            for key, entry in entries.items()
            if not expiry.is_live(entry.expires, now)
        ][:limit]
        for space, key in expired_keys:
            del self._spaces[space][key]
        return len(expired_keys)

    async def spaces(self, after: str | None, limit: int) -> list[str]:
        self._require_open()
        nonempty = (space for space in tuple(self._spaces) if self._live_entries(space))
        return sorted(space for space in nonempty if space > (after or ""))[:limit]

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        entries = self._live_entries(space)
        return [entries[key] for key in sorted(entries) if key > (after or "")][:limit]

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        self._live_entries(space).update((entry.key, entry) for entry in entries)

    async def freeze(self, space: str) -> None:
        self._require_open()
        self._frozen_spaces.add(space)

    async def thaw(self, space: str) -> None:
        self._require_open()
        self._frozen_spaces.discard(space)

    async def erase(self, space: str) -> None:
        await self.thaw(space)
        self._spaces.pop(space, None)

    async def check(self) -> None:
        self._require_open()

    @property
    def _now(self) -> int:
        return expiry.milliseconds(self._clock())

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreClosed

    def _require_thawed(self, space: str) -> None:
        self._require_open()
        if space in self._frozen_spaces:
            raise SpaceFrozen

    def _live_entries(self, space: str) -> dict[str, Entry]:
        """Returns the entries of a space, after dropping expired ones."""
        self._require_open()
        now = self._now
        entries = self._spaces.get(space, {})
        self._spaces[space] = {key: entry for key, entry in entries.items() if expiry.is_live(entry.expires, now)}
        return self._spaces[space]

    def _build_entry(self, key: str, value: bytes, ttl: int | None, tier: Tier) -> Entry:
        window = expiry.window(ttl)
        return Entry(key, value, tier, expiry.deadline(self._now, window), window)

    def _replace_value(self, space: str, key: str, value: bytes, ttl: int | None, quota: Quota) -> None:
        entry = self._live_entries(space).get(key)
        following = self._build_entry(key, value, ttl, Tier.DURABLE) if entry is None else entry._replace(value=value)
        self._store(space, following, quota)

    def _store(self, space: str, entry: Entry, quota: Quota) -> None:
        entries, key = self._live_entries(space), entry.key
        keys = len(entries)
        used_bytes = sum(len(name) + len(stored_entry.value) for name, stored_entry in entries.items())
        more_bytes = len(entry.value) - len(entries[key].value) if key in entries else len(key) + len(entry.value)
        if key not in entries and quota.max_keys is not None and keys + 1 > quota.max_keys:
            raise KeysExhausted(keys, quota.max_keys)
        if more_bytes > 0 and quota.max_bytes is not None and used_bytes + more_bytes > quota.max_bytes:
            raise StorageFull(used_bytes, quota.max_bytes)
        entries[key] = entry
