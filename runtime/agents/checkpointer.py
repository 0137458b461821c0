"""LangGraph's checkpoints as rows. A worker whose run another one has taken over cannot write any."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from pydantic_core import to_json
from sqlalchemy import Select, select, tuple_

from baobab.runtime.agents.checkpoint_json import dumps, dumps_json, loads
from baobab.runtime.agents.event_log import EventLog
from baobab.runtime.agents.failures import RunFailed
from baobab.runtime.agents.pieces import CheckpointPacker, CheckpointRow, read_pieces, save_checkpoints
from baobab.runtime.agents.tables import Write, checkpoints, pieces, writes
from baobab.storage.sql.database import Database
from baobab.storage.sql.statements import Statements

_LARGEST = 16 * 2**20
_INSERT_WRITE = (
    "INSERT INTO agent_writes"
    " (app_id, thread_id, namespace, checkpoint_id, task_id, position, channel, value, task_path)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (app_id, thread_id, namespace, checkpoint_id, task_id, position) DO "
)
_UPDATE_WRITE = "UPDATE SET channel = excluded.channel, value = excluded.value, task_path = excluded.task_path"


class Checkpointer(BaseCheckpointSaver[int]):
    """Stores checkpoints of an app's runs in the database.

    event_log: the event log of the run, in whose transactions they are written. Without it each write is a transaction
    of its own, and anybody may write. is_new: whether the run is known to have no checkpoint yet.
    """

    def __init__(
        self, database: Database, app_id: str, event_log: EventLog | None = None, *, is_new: bool = False
    ) -> None:
        super().__init__()
        self._app_id = app_id
        self._is_new = is_new
        self._database = database
        self._event_log = event_log
        # The state of a run came from JSON.
        self._dumps = dumps if event_log is None else dumps_json
        # A run has a single writer, which knows what it has stored.
        self._packer = None if event_log is None else CheckpointPacker(self._dumps)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self._is_new:
            return None
        configurable = config["configurable"]
        query = self._select_checkpoints().where(
            checkpoints.c.thread_id == configurable["thread_id"],
            checkpoints.c.namespace == configurable.get("checkpoint_ns", ""),
        )
        if checkpoint_id := get_checkpoint_id(config):
            query = query.where(checkpoints.c.id == checkpoint_id)
        tuples = await self._load_tuples(query.order_by(checkpoints.c.id.desc()).limit(1))
        return tuples[0] if tuples else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        query = self._select_checkpoints().order_by(checkpoints.c.id.desc())
        if config is not None:
            configurable = config["configurable"]
            query = query.where(checkpoints.c.thread_id == configurable["thread_id"])
            if (namespace := configurable.get("checkpoint_ns")) is not None:
                query = query.where(checkpoints.c.namespace == namespace)
            if checkpoint_id := get_checkpoint_id(config):
                query = query.where(checkpoints.c.id == checkpoint_id)
        if before is not None and (last := get_checkpoint_id(before)):
            query = query.where(checkpoints.c.id < last)
        count = 0
        for checkpoint_tuple in await self._load_tuples(query if filter else query.limit(limit)):
            if limit is not None and count >= limit:
                return
            metadata: Any = checkpoint_tuple.metadata
            if all(metadata.get(name) == value for name, value in (filter or {}).items()):
                count += 1
                yield checkpoint_tuple

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, namespace = config["configurable"]["thread_id"], config["configurable"].get("checkpoint_ns", "")
        parent_id, about = config["configurable"].get("checkpoint_id"), get_checkpoint_metadata(config, metadata)
        packer = self._packer or CheckpointPacker(self._dumps)
        package = packer.pack_checkpoint(checkpoint)
        values = (thread_id, namespace, checkpoint["id"], parent_id, package.text, to_json(about).decode())
        row = CheckpointRow(values, package.fresh)
        self._is_new = False
        if self._event_log is None:
            await self._database.transact(lambda statements: save_checkpoints(statements, self._app_id, [row]))
        elif package.size > _LARGEST:
            raise RunFailed("state_too_large", f"The state of the run has more than {_LARGEST} characters.")
        else:
            await self._event_log.add_checkpoint(row)
        packer.mark_saved(package)
        return _build_config(thread_id, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        configurable = config["configurable"]
        checkpoint = (configurable["thread_id"], configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"])
        rows = [
            (
                self._app_id,
                *checkpoint,
                task_id,
                WRITES_IDX_MAP.get(channel, position),
                channel,
                self._dumps(value),
                task_path,
            )
            for position, (channel, value) in enumerate(writes)
        ]

        def write(statements: Statements) -> None:
            for row in rows:
                # A result (position 0 or more) is written once; an interrupt or an error replaces the one before.
                statements.rows(_INSERT_WRITE + ("NOTHING" if row[5] >= 0 else _UPDATE_WRITE), *row)

        if self._event_log is None:
            await self._write(write)
        else:
            # The next checkpoint replaces most at once; those of a task whose siblings wait are written at the pause.
            self._event_log.defer_write(write)

    async def adelete_thread(self, thread_id: str) -> None:
        def write(statements: Statements) -> None:
            for table in (writes, checkpoints, pieces):
                deleting = f"DELETE FROM {table.name} WHERE app_id = ? AND thread_id = ?"  # noqa: S608 - our names
                statements.rows(deleting, self._app_id, thread_id)

        await self._write(write)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        def write(statements: Statements) -> None:
            for table in (checkpoints, pieces, writes):
                columns = ", ".join(column.name for column in table.c if column.name != "thread_id")
                insert = f"INSERT INTO {table.name} (thread_id, {columns}) SELECT ?, {columns} FROM {table.name}"  # noqa: S608 - our names
                of_source = f"{insert} WHERE app_id = ? AND thread_id = ?"
                statements.rows(of_source, target_thread_id, self._app_id, source_thread_id)

        await self._write(write)

    async def _write(self, write: Write) -> None:
        if self._event_log is None:
            await self._database.transact(write)
        else:
            await self._event_log.write_transaction(write)

    def _select_checkpoints(self) -> Select[Any]:
        return select(checkpoints).where(checkpoints.c.app_id == self._app_id)

    async def _load_tuples(self, query: Select[Any]) -> list[CheckpointTuple]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
            names = [(row.thread_id, row.namespace, row.id) for row in rows]
            columns = (writes.c.thread_id, writes.c.namespace, writes.c.checkpoint_id)
            pending: dict[tuple[str, str, str], list[Any]] = {}
            for start in range(0, len(names), 200):
                in_batch = tuple_(*columns).in_(names[start : start + 200])
                writes_query = select(writes).where(writes.c.app_id == self._app_id, in_batch)
                for write in (await connection.execute(writes_query)).all():
                    pending.setdefault((write.thread_id, write.namespace, write.checkpoint_id), []).append(write)
            texts, threads = [row.checkpoint for row in rows], {row.thread_id for row in rows}
            texts_by_digest = await read_pieces(connection.execute, self._app_id, threads, texts)
        if self._packer is not None:
            self._packer.mark_stored(texts_by_digest)
        return [
            _build_tuple(row, pending.get(name, []), texts_by_digest) for row, name in zip(rows, names, strict=True)
        ]


def _build_tuple(row: Any, pending: list[Any], read: Mapping[str, str]) -> CheckpointTuple:
    pending.sort(key=lambda write: writes_sort_key(write.task_path, write.task_id, write.position))
    return CheckpointTuple(
        config=_build_config(row.thread_id, row.namespace, row.id),
        checkpoint=loads(row.checkpoint, read),
        metadata=row.about,
        parent_config=_build_config(row.thread_id, row.namespace, row.parent_id) if row.parent_id else None,
        pending_writes=[(write.task_id, write.channel, loads(write.value)) for write in pending],
    )


def _build_config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}
