"""A digest of a set of items that does not depend on their order."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime

_MODULUS = 1 << 256


@dataclass(slots=True)
class Digest:
    """The number of items, their bytes where that applies, and the sum of the SHA-256 of each.

    A sum and not XOR, with which two equal items would cancel out.
    """

    count: int = 0
    bytes: int = 0
    total: int = 0

    def add(self, item: list[object], size: int = 0) -> None:
        """Adds an item. item: anything made of JSON values, instants, dates and bytes."""
        text = json.dumps(item, default=_plain, sort_keys=True, separators=(",", ":"))
        self.count += 1
        self.bytes += size
        self.total = (self.total + int.from_bytes(hashlib.sha256(text.encode()).digest())) % _MODULUS


def _plain(value: object) -> object:
    match value:
        case datetime():
            return {"instant": value.astimezone(UTC).isoformat()}
        case date():
            return {"date": value.isoformat()}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} has no canonical form yet")
