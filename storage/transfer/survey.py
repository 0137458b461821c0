"""Surveys what an installation holds, part by part. Both sides are equal after a complete transfer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from baobab.storage.transfer.digest import Digest

_WIDTH = 34


@dataclass(frozen=True)
class Survey:
    rows: dict[str, Digest]
    """One digest per table."""
    entries: dict[str, Digest]
    """One digest per space of the key-value store."""
    objects: dict[str, Digest] = field(default_factory=dict)
    """One digest per app, which is the first segment of the keys."""
    tables: dict[str, Digest] = field(default_factory=dict)
    """One digest per table of an app, named `APP.TABLE`."""

    @property
    def fingerprint(self) -> str:
        """Identifies the source when a transfer continues. It covers only rows, because key-value entries expire
        meanwhile.
        """
        return hashlib.sha256(
            repr(sorted((name, *_read_numbers(d)) for name, d in self.rows.items())).encode()
        ).hexdigest()

    def list_differences(self, other: Survey) -> list[str]:
        """Returns the names of the parts that differ."""
        return [
            *(f"table {name}" for name in _find_differing(self.rows, other.rows)),
            *(f"space {name}" for name in _find_differing(self.entries, other.entries)),
            *(f"objects of {name}" for name in _find_differing(self.objects, other.objects)),
            *(f"table {name}" for name in _find_differing(self.tables, other.tables)),
        ]

    def list_differing_tables(self, other: Survey) -> tuple[list[str], list[str]]:
        """Returns the names of the tables that differ: the installation's, and those of apps as `APP.TABLE`."""
        of_apps = [name for name in _find_differing(self.tables, other.tables) if "." in name]
        return _find_differing(self.rows, other.rows), of_apps

    def render_lines(self) -> Iterator[str]:
        """Yields a short table for people, without the tables that have no rows."""
        for name, digest in self.rows.items():
            if digest.count:
                yield f"{name:{_WIDTH}} {digest.count:>10} rows"
        entries, objects = _add_digests(self.entries), _add_digests(self.objects)
        if self.tables:
            yield f"{'tables of apps':{_WIDTH}} {_add_digests(self.tables).count:>10} rows in {len(self.tables)} tables"
        yield f"{'key-value store':{_WIDTH}} {entries.count:>10} keys, {entries.bytes} bytes"
        yield f"{'objects':{_WIDTH}} {objects.count:>10} files, {objects.bytes} bytes"


def _find_differing(ours: dict[str, Digest], others: dict[str, Digest]) -> list[str]:
    nothing = Digest()
    return sorted(name for name in ours | others if ours.get(name, nothing) != others.get(name, nothing))


def _add_digests(parts: dict[str, Digest]) -> Digest:
    return Digest(sum(part.count for part in parts.values()), sum(part.bytes for part in parts.values()))


def _read_numbers(digest: Digest) -> tuple[int, int]:
    return digest.count, digest.total
