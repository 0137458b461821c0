"""What an installation holds, part by part: the same on both sides when all of it has been carried over."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from baobab.storage.transfer.digest import Digest

_WIDTH = 24


@dataclass(frozen=True)
class Survey:
    rows: dict[str, Digest]
    """By table."""
    entries: dict[str, Digest]
    """Of the key-value store, by space."""
    objects: dict[str, Digest] = field(default_factory=dict)
    """By the first segment of their keys, which is an app."""

    @property
    def fingerprint(self) -> str:
        """By which a transfer that goes on knows its source again: the rows, for entries expire by themselves."""
        return hashlib.sha256(
            repr(sorted((name, *_read_numbers(d)) for name, d in self.rows.items())).encode()
        ).hexdigest()

    def list_differences(self, other: Survey) -> list[str]:
        """Names of the parts that are not the same in the other."""
        return [
            *(f"table {name}" for name in _find_differing(self.rows, other.rows)),
            *(f"space {name}" for name in _find_differing(self.entries, other.entries)),
            *(f"objects of {name}" for name in _find_differing(self.objects, other.objects)),
        ]

    def render_lines(self) -> Iterator[str]:
        """A short table for people."""
        for name, digest in self.rows.items():
            yield f"{name:{_WIDTH}} {digest.count:>10} rows"
        entries, objects = _add_digests(self.entries), _add_digests(self.objects)
        yield f"{'key-value store':{_WIDTH}} {entries.count:>10} keys, {entries.bytes} bytes"
        yield f"{'objects':{_WIDTH}} {objects.count:>10} files, {objects.bytes} bytes"


def _find_differing(ours: dict[str, Digest], others: dict[str, Digest]) -> list[str]:
    nothing = Digest()
    return sorted(name for name in ours | others if ours.get(name, nothing) != others.get(name, nothing))


def _add_digests(parts: dict[str, Digest]) -> Digest:
    return Digest(sum(part.count for part in parts.values()), sum(part.bytes for part in parts.values()))


def _read_numbers(digest: Digest) -> tuple[int, int]:
    return digest.count, digest.total
