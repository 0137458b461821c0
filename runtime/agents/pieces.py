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

from baobab.runtime.agents.checkpoint_json import MARK
from baobab.runtime.agents.tables import pieces
from baobab.storage.database import Execute
from baobab.storage.transactions import Statements

_LEAST = 512
"""Characters of a value that is worth a row."""
_LEVELS = {"state": 1, "items": 1, "talks": 2, "said": 2}
"""Channels that grow by what is added to them, and how many levels of them are taken apart; all others are whole."""
_REFERENCE_START = f'{{"{MARK}":"piece","of":"'
_DIGEST_LENGTH = 40
_AT_ONCE = 400
_INSERT_PIECE = (
    "INSERT INTO agent_pieces (thread_id, digest, text) VALUES (?, ?, ?) ON CONFLICT (thread_id, digest) DO NOTHING"
)


@dataclass(frozen=True, slots=True)
class PackedValue:
    """A value as it was stored. text: what stands for it in what holds it; size: characters of all that it is."""

    value: Any
    text: str
    size: int
    parts: Mapping[Any, "PackedValue"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PackedCheckpoint:
    """A checkpoint that is about to be stored. fresh: texts of pieces that are not yet, by digest."""

    text: str
    size: int
    fresh: Mapping[str, str]
    channels: Mapping[str, PackedValue]


class CheckpointPacker:
    """Packs the checkpoints of one run, one after the other. dumps: makes the JSON text of a value."""

    def __init__(self, dumps: Callable[[Any], str]) -> None:
        self._dumps = dumps
        self._channels: Mapping[str, PackedValue] = {}
        self._stored: set[str] = set()

    def pack_checkpoint(self, checkpoint: Mapping[str, Any]) -> PackedCheckpoint:
        """What to store. Call `keep` when it is stored."""
        fresh: dict[str, str] = {}
        channels = {
            name: self._pack_value(value, self._channels.get(name), fresh, _LEVELS.get(name, 0))
            for name, value in checkpoint["channel_values"].items()
        }
        values = _join_object({name: packed.text for name, packed in channels.items()})
        rest = {name: self._dumps(value) for name, value in checkpoint.items() if name != "channel_values"}
        text = _join_object({**rest, "channel_values": values})
        return PackedCheckpoint(text, len(text) + sum(each.size for each in channels.values()), fresh, channels)

    def mark_saved(self, package: PackedCheckpoint) -> None:
        """The package is stored: what it holds need not be stored again."""
        self._channels = package.channels
        self._stored.update(package.fresh)

    def mark_stored(self, digests: Iterable[str]) -> None:
        """Pieces that were read are stored."""
        self._stored.update(digests)

    def _pack_value(self, value: Any, before: PackedValue | None, fresh: dict[str, str], levels: int) -> PackedValue:
        # Nothing in a state is changed in place: the same object is the same value.
        if before is not None and before.value is value:
            return before
        parts: dict[Any, PackedValue] = {}
        of = before.parts if before is not None else {}
        if levels and type(value) is dict and MARK not in value and all(type(name) is str for name in value):
            parts = {name: self._pack_value(item, of.get(name), fresh, levels - 1) for name, item in value.items()}
            text = _join_object({name: part.text for name, part in parts.items()})
        elif levels and type(value) is list:
            parts = {
                index: self._pack_value(item, of.get(index), fresh, levels - 1) for index, item in enumerate(value)
            }
            text = "[" + ",".join(part.text for part in parts.values()) + "]"
        else:
            text = self._dumps(value)
        size = len(text) + sum(part.size for part in parts.values())
        if len(text) > _LEAST:
            digest = blake2b(text.encode(), digest_size=_DIGEST_LENGTH // 2).hexdigest()
            if digest not in self._stored:
                fresh[digest] = text
            text = f'{_REFERENCE_START}{digest}"}}'
        return PackedValue(value, text, size, parts)


def find_digests(texts: Iterable[str]) -> set[str]:
    """The digests that stand in texts where a piece may be named."""
    return {named[:_DIGEST_LENGTH] for text in texts for named in text.split(_REFERENCE_START)[1:]}


def _join_object(texts: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{to_json(name).decode()}:{text}" for name, text in texts.items()) + "}"


async def read_pieces(execute: Execute, thread_ids: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """The pieces that texts of these runs name, directly or not, by digest."""
    read: dict[str, str] = {}
    theirs, wanted = sorted(set(thread_ids)), sorted(find_digests(texts))
    while wanted:
        found: dict[str, str] = {}
        for few in range(0, len(wanted), _AT_ONCE):
            these = pieces.c.digest.in_(wanted[few : few + _AT_ONCE])
            query = select(pieces.c.digest, pieces.c.text).where(pieces.c.thread_id.in_(theirs), these)
            found |= {row.digest: row.text for row in (await execute(query)).all()}
        read |= found
        wanted = sorted(find_digests(found.values()) - read.keys())
    return read


def add_pieces(statements: Statements, thread_id: str, fresh: Mapping[str, str]) -> None:
    """Store pieces of a run."""
    if fresh:
        statements.execute_many(_INSERT_PIECE, [(thread_id, digest, text) for digest, text in fresh.items()])
