"""Pieces: the large values of checkpoints, each of which is stored once for its run.

A checkpoint holds all of a run's state, most of which is the same as in the checkpoint before. So each large value has
a row of its own, with the digest of its text as the key, and the checkpoint refers to it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from pydantic_core import to_json
from sqlalchemy import select

from baobab.runtime.agents.tables import pieces
from baobab.storage.sql.database import Execute
from baobab.storage.sql.statements import Statements

# Here and not in checkpoint_json.py, which imports LangGraph: the event log of a run needs this module without it.
MARK = "$"
"""The key of the object that stands for a value that is not JSON."""
_LEAST = 512
"""A value of more characters than this gets a row of its own."""
_LEVELS = {"state": 1, "items": 1, "talks": 2, "said": 2}
"""The channels that grow, and how many levels of them are split into pieces. All others are stored whole."""
_REFERENCE_START = f'{{"{MARK}":"piece","of":"'
_DIGEST_LENGTH = 40
_AT_ONCE = 400
_INSERT_PIECE = (
    "INSERT INTO agent_pieces (app_id, thread_id, digest, text) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (app_id, thread_id, digest) DO NOTHING"
)


_UPSERT_CHECKPOINT = (
    "INSERT INTO agent_checkpoints (app_id, thread_id, namespace, id, parent_id, checkpoint, about)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (app_id, thread_id, namespace, id) DO UPDATE SET parent_id = excluded.parent_id,"
    " checkpoint = excluded.checkpoint, about = excluded.about"
)


class CheckpointRow(NamedTuple):
    """A row of `agent_checkpoints`, and the pieces that are stored with it, by digest."""

    values: tuple[str, str, str, str | None, str, str]
    """thread_id, namespace, id, parent_id, checkpoint and about."""
    fresh: Mapping[str, str]

    @property
    def size(self) -> int:
        """The characters that are written."""
        return len(self.values[4]) + sum(map(len, self.fresh.values()))


@dataclass(frozen=True, slots=True)
class PackedValue:
    """A value as stored. text: its JSON, or a reference to its piece; size: the characters of it with all parts."""

    value: Any
    text: str
    size: int
    parts: Mapping[Any, "PackedValue"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PackedCheckpoint:
    """A checkpoint to be stored. fresh: the texts of pieces that are not stored yet, by digest."""

    text: str
    size: int
    fresh: Mapping[str, str]
    channels: Mapping[str, PackedValue]


class CheckpointPacker:
    """Packs the checkpoints of one run, one after the other. dumps: encodes a value as JSON text."""

    def __init__(self, dumps: Callable[[Any], str]) -> None:
        self._dumps = dumps
        self._channels: Mapping[str, PackedValue] = {}
        self._stored_digests: set[str] = set()

    def pack_checkpoint(self, checkpoint: Mapping[str, Any]) -> PackedCheckpoint:
        """Packs a checkpoint. Call `mark_saved` when it is stored."""
        fresh: dict[str, str] = {}
        channels = {
            name: self._pack_value(value, self._channels.get(name), fresh, _LEVELS.get(name, 0))
            for name, value in checkpoint["channel_values"].items()
        }
        values = _join_object({name: channel.text for name, channel in channels.items()})
        other_fields = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        text = f'{self._dumps(other_fields)[:-1]},"channel_values":{values}}}'
        return PackedCheckpoint(text, len(text) + sum([each.size for each in channels.values()]), fresh, channels)

    def mark_saved(self, package: PackedCheckpoint) -> None:
        """Notes that a checkpoint was stored: its pieces need not be stored again."""
        self._channels = package.channels
        self._stored_digests.update(package.fresh)

    def mark_stored(self, digests: Iterable[str]) -> None:
        """Notes that pieces are stored, because they were read."""
        self._stored_digests.update(digests)

    def _pack_value(self, value: Any, before: PackedValue | None, fresh: dict[str, str], levels: int) -> PackedValue:
        # Values of a state are never changed in place, so the same object is the same value.
        if before is not None and before.value is value:
            return before
        parts: dict[Any, PackedValue] = {}
        parts_before = before.parts if before is not None else {}
        if levels and type(value) is dict and MARK not in value and all(type(name) is str for name in value):
            parts = {
                name: self._pack_value(item, parts_before.get(name), fresh, levels - 1) for name, item in value.items()
            }
            text = _join_object({name: part.text for name, part in parts.items()})
        elif levels and type(value) is list:
            parts = {
                index: self._pack_value(item, parts_before.get(index), fresh, levels - 1)
                for index, item in enumerate(value)
            }
            text = "[" + ",".join(part.text for part in parts.values()) + "]"
        else:
            text = self._dumps(value)
        size = len(text) + sum([part.size for part in parts.values()])
        if len(text) > _LEAST:
            digest = blake2b(text.encode(), digest_size=_DIGEST_LENGTH // 2).hexdigest()
            if digest not in self._stored_digests:
                fresh[digest] = text
            text = f'{_REFERENCE_START}{digest}"}}'
        return PackedValue(value, text, size, parts)


def find_digests(texts: Iterable[str]) -> set[str]:
    """Returns the digests of all pieces that texts may refer to."""
    return {part[:_DIGEST_LENGTH] for text in texts for part in text.split(_REFERENCE_START)[1:]}


def _join_object(texts: Mapping[str, str]) -> str:
    return "{" + ",".join([f"{_encode_name(name)}:{text}" for name, text in texts.items()]) + "}"


@lru_cache(maxsize=1024)
def _encode_name(name: str) -> str:
    return to_json(name).decode()


async def read_pieces(execute: Execute, app_id: str, thread_ids: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """Reads the pieces of an app's runs that texts refer to, directly or through other pieces: texts by digest."""
    texts_by_digest: dict[str, str] = {}
    of_runs = (pieces.c.app_id == app_id, pieces.c.thread_id.in_(sorted(set(thread_ids))))
    missing = sorted(find_digests(texts))
    while missing:
        loaded_texts: dict[str, str] = {}
        for start in range(0, len(missing), _AT_ONCE):
            in_batch = pieces.c.digest.in_(missing[start : start + _AT_ONCE])
            query = select(pieces.c.digest, pieces.c.text).where(*of_runs, in_batch)
            loaded_texts |= {row.digest: row.text for row in (await execute(query)).all()}
        texts_by_digest |= loaded_texts
        missing = sorted(find_digests(loaded_texts.values()) - texts_by_digest.keys())
    return texts_by_digest


def save_checkpoints(statements: Statements, app_id: str, rows: Sequence[CheckpointRow]) -> None:
    """Stores checkpoints and their pieces. One that is stored already is replaced."""
    for row in rows:
        add_pieces(statements, app_id, row.values[0], row.fresh)
    # The last one of those with the same key.
    by_key = {row.values[:3]: (app_id, *row.values) for row in rows}
    statements.insert_many(_UPSERT_CHECKPOINT, list(by_key.values()))


def add_pieces(statements: Statements, app_id: str, thread_id: str, fresh: Mapping[str, str]) -> None:
    """Stores pieces of a run."""
    if fresh:
        rows = [(app_id, thread_id, digest, text) for digest, text in fresh.items()]
        statements.insert_many(_INSERT_PIECE, rows)
