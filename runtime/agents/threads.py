"""Threads: conversations that continue over several runs.

Each thread belongs to one person and one agent, whatever credential the person uses. A run that completes adds the
messages of its remembering nodes, as one turn for each visit of a node, in the transaction in which it ends and with
the row of the thread locked. So turns are stored whole, in the order of completion, and concurrent runs lose nothing.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import and_, select

from baobab.runtime.agents.run_session import Message, RecalledMessages
from baobab.runtime.agents.spec.spec import LlmNode
from baobab.runtime.agents.tables import messages, threads
from baobab.storage.sql.database import Database
from baobab.storage.sql.statements import Statements

_INSERT_THREAD = (
    "INSERT INTO agent_threads (id, app_id, agent_id, person, name, last_position, created_at, updated_at)"
    " VALUES (?, ?, ?, ?, ?, 0, ?, ?) ON CONFLICT DO NOTHING"
)
_RESERVE_POSITIONS = (
    "UPDATE agent_threads SET last_position = last_position + ?, updated_at = ?"
    " WHERE app_id = ? AND agent_id = ? AND person = ? AND name = ? RETURNING id, last_position"
)
_READ_TAINT = "SELECT tainted FROM agent_runs WHERE app_id = ? AND id = ?"
_INSERT_MESSAGE = (
    "INSERT INTO agent_messages"
    " (app_id, thread, position, node_id, turn, run_id, message, characters, tainted, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def add_turns(
    statements: Statements, run: Any, turns_by_node: Mapping[str, Any], thread_id: str, now: datetime
) -> None:
    """Adds the turns of a run to its thread, if it has one. thread_id: the id of a new row."""
    turns = [(node_id, turn) for node_id, node_turns in turns_by_node.items() for turn in _split_turns(node_turns)]
    if run.thread_id is None or not turns:
        return
    app_id = run.app_id
    key = (app_id, run.agent_id, run.person, run.thread_id)
    statements.rows(_INSERT_THREAD, thread_id, *key, now, now)
    count = sum(len(turn) for _, turn in turns)
    ((thread, last),) = statements.rows(_RESERVE_POSITIONS, count, now, *key)
    ((tainted,),) = statements.rows(_READ_TAINT, app_id, run.id)
    rows, position = [], last - count
    for node_id, turn in turns:
        turn_position = position + 1
        for message in turn:
            position += 1
            text = json.dumps(message, ensure_ascii=False)
            about = (node_id, turn_position, run.id, text, len(text), bool(tainted), now)
            rows.append((app_id, thread, position, *about))
    statements.insert_many(_INSERT_MESSAGE, rows)


def _split_turns(node_messages: Sequence[Any]) -> list[list[Message]]:
    """Splits what a node said into turns. An earlier version kept the whole conversation as one flat list."""
    turns = [list(turn) for turn in node_messages if not isinstance(turn, Mapping)]
    if flat := [message for message in node_messages if isinstance(message, Mapping)]:
        start = max(index for index, message in enumerate(flat) if message["role"] == "user")
        turns.insert(0, flat[start:])
    return turns


class ThreadMemory:
    """Reads earlier messages for the nodes of a run, once for each node."""

    def __init__(self, database: Database, run: Any) -> None:
        self._database = database
        self._run = run
        self._recalled_messages: dict[str, RecalledMessages] = {}

    async def recall_messages(self, node_id: str, node: LlmNode, until: int | None) -> RecalledMessages:
        """Reads the latest turns of a node, as many whole ones as its bounds allow.

        If a single turn exceeds them, only its first and last message are read: the user's and the answer.
        """
        if self._run.thread_id is None:
            return RecalledMessages()
        recalled_messages = self._recalled_messages.get(node_id)
        if until is None or recalled_messages is None or recalled_messages.position != until:
            recalled_messages = self._recalled_messages[node_id] = await self._read_messages(node_id, node, until)
        return recalled_messages

    async def _read_messages(self, node_id: str, node: LlmNode, until: int | None) -> RecalledMessages:
        run = self._run
        of_thread = (
            threads.c.app_id == run.app_id,
            threads.c.agent_id == run.agent_id,
            threads.c.person == run.person,
            threads.c.name == run.thread_id,
        )
        sizes = select(messages.c.position, messages.c.turn, messages.c.characters)
        async with self._database.reading() as connection:
            thread = (await connection.execute(select(threads.c.id, threads.c.last_position).where(*of_thread))).first()
            if thread is None:
                return RecalledMessages(position=until or 0)
            position = thread.last_position if until is None else until
            of_node = (
                messages.c.app_id == run.app_id,
                messages.c.thread == thread.id,
                messages.c.node_id == node_id,
            )
            latest = sizes.where(*of_node, messages.c.position <= position).order_by(messages.c.position.desc())
            rows = (await connection.execute(latest.limit(node.remembers_messages + 1))).all()
            is_wanted = _fitting_messages(rows, node)
            if is_wanted is None:
                return RecalledMessages(position=position)
            query = (
                select(messages.c.message, messages.c.tainted).where(*of_node, is_wanted).order_by(messages.c.position)
            )
            message_rows = (await connection.execute(query)).all()
        return RecalledMessages(
            [row.message for row in message_rows], position, any(row.tainted for row in message_rows)
        )


def _fitting_messages(rows: Sequence[Any], node: LlmNode) -> Any:
    """Returns a condition for the messages within a node's bounds; None if there are none.

    rows: newest first, one more than the bounds allow.
    """
    start, count, characters = None, 0, 0
    for turn, group in groupby(rows, lambda row: row.turn):
        members = list(group)
        count += len(members)
        characters += sum(row.characters for row in members)
        # A turn whose first message was not read is incomplete.
        if count > node.remembers_messages or characters > node.remembers_characters or members[-1].position != turn:
            break
        start = turn
    if start is not None:
        return and_(messages.c.position >= start, messages.c.position <= rows[0].position)
    if not rows or node.remembers_messages < 2:
        return None
    is_first_or_last = messages.c.position.in_([rows[0].turn, rows[0].position])
    return and_(is_first_or_last, messages.c.characters <= node.remembers_characters // 2)
