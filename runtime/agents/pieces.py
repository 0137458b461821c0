"""Pieces: a checkpoint as a small text, and the large values in it, each of which is stored once for its run.

A checkpoint holds all of a run's state, and most of that is what the checkpoint before held. So whatever is large
stands in a row of its own, under the digest of its text, and the checkpoint names it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from pydantic_core import to_json
from sqlalchemy import select

from baobab.runtime.agents.plain import MARK
from baobab.runtime.agents.rows import pieces
from baobab.storage.database import Execute
from baobab.storage.transactions import Statements

_LEAST = 512
"""Characters of a value that is worth a row."""
_LEVELS = {"state": 1, "items": 1, "talks": 2, "said": 2}
"""Channels that grow by what is added to them, and how many levels of them are taken apart; all others are whole."""
_NAMED = f'{{"{MARK}":"piece","of":"'
_DIGEST_LENGTH = 40
_AT_ONCE = 400
_ADDED = (
    "INSERT INTO agent_pieces (thread_id, digest, text) VALUES (?, ?, ?) ON CONFLICT (thread_id, digest) DO NOTHING"
)


@dataclass(frozen=True, slots=True)
class Packed:
    """A value as it was stored. text: what stands for it in what holds it; size: characters of all that it is."""

    value: Any
    text: str
    size: int
    parts: Mapping[Any, "Packed"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Package:
    """A checkpoint that is about to be stored. fresh: texts of pieces that are not yet, by digest."""

    text: str
    size: int
    fresh: Mapping[str, str]
    channels: Mapping[str, Packed]


class Packer:
    """Packs the checkpoints of one run, one after the other. dumps: makes the JSON text of a value."""

    def __init__(self, dumps: Callable[[Any], str]) -> None:
        self._dumps = dumps
        self._channels: Mapping[str, Packed] = {}
        self._stored: set[str] = set()

    def pack(self, checkpoint: Mapping[str, Any]) -> Package:
        """What to store. Call `keep` when it is stored."""
        fresh: dict[str, str] = {}
        channels = {
            name: self._pack(value, self._channels.get(name), fresh, _LEVELS.get(name, 0))
            for name, value in checkpoint["channel_values"].items()
        }
        values = _object({name: packed.text for name, packed in channels.items()})
        rest = {name: self._dumps(value) for name, value in checkpoint.items() if name != "channel_values"}
        text = _object({**rest, "channel_values": values})
        return Package(text, len(text) + sum(each.size for each in channels.values()), fresh, channels)

    def keep(self, package: Package) -> None:
        """The package is stored: what it holds need not be stored again."""
        self._channels = package.channels
        self._stored.update(package.fresh)

    def know(self, digests: Iterable[str]) -> None:
        """Pieces that were read are stored."""
        self._stored.update(digests)

    def _pack(self, value: Any, before: Packed | None, fresh: dict[str, str], levels: int) -> Packed:
        # Nothing in a state is changed in place: the same object is the same value.
        if before is not None and before.value is value:
            return before
        parts: dict[Any, Packed] = {}
        of = before.parts if before is not None else {}
        if levels and type(value) is dict and MARK not in value and all(type(name) is str for name in value):
            parts = {name: self._pack(item, of.get(name), fresh, levels - 1) for name, item in value.items()}
            text = _object({name: part.text for name, part in parts.items()})
        elif levels and type(value) is list:
            parts = {index: self._pack(item, of.get(index), fresh, levels - 1) for index, item in enumerate(value)}
            text = "[" + ",".join(part.text for part in parts.values()) + "]"
        else:
            text = self._dumps(value)
        size = len(text) + sum(part.size for part in parts.values())
        if len(text) > _LEAST:
            digest = blake2b(text.encode(), digest_size=_DIGEST_LENGTH // 2).hexdigest()
            if digest not in self._stored:
                fresh[digest] = text
            text = f'{_NAMED}{digest}"}}'
        return Packed(value, text, size, parts)


def named_in(texts: Iterable[str]) -> set[str]:
    """The digests that stand in texts where a piece may be named."""
    return {named[:_DIGEST_LENGTH] for text in texts for named in text.split(_NAMED)[1:]}


def _object(texts: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{to_json(name).decode()}:{text}" for name, text in texts.items()) + "}"


async def read_pieces(execute: Execute, thread_ids: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """The pieces that texts of these runs name, directly or not, by digest."""
    read: dict[str, str] = {}
    theirs, wanted = sorted(set(thread_ids)), sorted(named_in(texts))
    while wanted:
        found: dict[str, str] = {}
        for few in range(0, len(wanted), _AT_ONCE):
            these = pieces.c.digest.in_(wanted[few : few + _AT_ONCE])
            query = select(pieces.c.digest, pieces.c.text).where(pieces.c.thread_id.in_(theirs), these)
            found |= {row.digest: row.text for row in (await execute(query)).all()}
        read |= found
        wanted = sorted(named_in(found.values()) - read.keys())
    return read


def add_pieces(statements: Statements, thread_id: str, fresh: Mapping[str, str]) -> None:
    """Store pieces of a run."""
    if fresh:
        statements.each(_ADDED, [(thread_id, digest, text) for digest, text in fresh.items()])
