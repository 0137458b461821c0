"""Conversations that are remembered: each belongs to one person and one agent, whatever credential the person uses.

A run that completes adds what its nodes that remember and the user said, as one turn for each visit of a node, in the
transaction in which it ends and under the lock of the thread's row. So turns stand in the order in which they were
completed, each as a whole, and two runs at once lose nothing of each other.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import and_, select

from baobab.runtime.agents.run_session import Message, RecalledMessages
from baobab.runtime.agents.spec import LlmNode
from baobab.runtime.agents.tables import messages, threads
from baobab.storage.database import Database
from baobab.storage.transactions import Statements

_INSERT_THREAD = (
    "INSERT INTO agent_threads (id, app_id, agent_id, person, name, last_position, created_at, updated_at)"
    " VALUES (?, ?, ?, ?, ?, 0, ?, ?) ON CONFLICT (agent_id, person, name) DO NOTHING"
)
_RESERVE_POSITIONS = (
    "UPDATE agent_threads SET last_position = last_position + ?, updated_at = ?"
    " WHERE agent_id = ? AND person = ? AND name = ? RETURNING id, last_position"
)
_INSERT_MESSAGE = (
    "INSERT INTO agent_messages (thread, position, node_id, turn, run_id, message, characters, tainted, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def add_turns(statements: Statements, run: Any, said: Mapping[str, Any], thread_id: str, now: datetime) -> None:
    """Add what a run said to its thread, if it has one. said: turns by node; thread_id: of the row, if it is new."""
    turns = [(node_id, turn) for node_id, theirs in said.items() for turn in _split_turns(theirs)]
    if run.thread_id is None or not turns:
        return
    named = (run.agent_id, run.person, run.thread_id)
    statements.rows(_INSERT_THREAD, thread_id, run.app_id, *named, now, now)
    count = sum(len(turn) for _, turn in turns)
    ((thread, last),) = statements.rows(_RESERVE_POSITIONS, count, now, *named)
    ((tainted,),) = statements.rows("SELECT tainted FROM agent_runs WHERE id = ?", run.id)
    rows, position = [], last - count
    for node_id, turn in turns:
        first = position + 1
        for message in turn:
            position += 1
            text = json.dumps(message, ensure_ascii=False)
            rows.append((thread, position, node_id, first, run.id, text, len(text), bool(tainted), now))
    statements.execute_many(_INSERT_MESSAGE, rows)


def _split_turns(said: Sequence[Any]) -> list[list[Message]]:
    """The turns of a node; of a run that an earlier version began, its whole conversation stands there as one list."""
    turns = [list(turn) for turn in said if not isinstance(turn, Mapping)]
    if flat := [message for message in said if isinstance(message, Mapping)]:
        begin = max(index for index, message in enumerate(flat) if message["role"] == "user")
        turns.insert(0, flat[begin:])
    return turns


class ThreadMemory:
    """What a run's nodes are reminded of, read once for each node while the run is made."""

    def __init__(self, database: Database, run: Any) -> None:
        self._database = database
        self._run = run
        self._recalled: dict[str, RecalledMessages] = {}

    async def recall_messages(self, node_id: str, node: LlmNode, until: int | None) -> RecalledMessages:
        """Read the latest turns of a node, as many whole ones as its bounds allow.

        A single turn that is greater than they allow is read without its tool calls: what the user asked and what was
        answered.
        """
        if self._run.thread_id is None:
            return RecalledMessages()
        known = self._recalled.get(node_id)
        if until is None or known is None or known.position != until:
            known = self._recalled[node_id] = await self._read_messages(node_id, node, until)
        return known

    async def _read_messages(self, node_id: str, node: LlmNode, until: int | None) -> RecalledMessages:
        run = self._run
        named = (threads.c.agent_id == run.agent_id, threads.c.person == run.person, threads.c.name == run.thread_id)
        sizes = select(messages.c.position, messages.c.turn, messages.c.characters)
        async with self._database.reading() as connection:
            thread = (await connection.execute(select(threads.c.id, threads.c.last_position).where(*named))).first()
            if thread is None:
                return RecalledMessages(position=until or 0)
            position = thread.last_position if until is None else until
            theirs = (messages.c.thread == thread.id, messages.c.node_id == node_id)
            latest = sizes.where(*theirs, messages.c.position <= position).order_by(messages.c.position.desc())
            rows = (await connection.execute(latest.limit(node.remembers_messages + 1))).all()
            wanted = _fitting_messages(rows, node)
            if wanted is None:
                return RecalledMessages(position=position)
            query = select(messages.c.message, messages.c.tainted).where(*theirs, wanted).order_by(messages.c.position)
            found = (await connection.execute(query)).all()
        return RecalledMessages([row.message for row in found], position, any(row.tainted for row in found))


def _fitting_messages(rows: Sequence[Any], node: LlmNode) -> Any:
    """Which messages are within a node's bounds, as a condition; None for none. rows: newest first, one too many."""
    begin, count, characters = None, 0, 0
    for turn, group in groupby(rows, lambda row: row.turn):
        members = list(group)
        count += len(members)
        characters += sum(row.characters for row in members)
        # The first of a turn that reaches beyond what was read is missing.
        if count > node.remembers_messages or characters > node.remembers_characters or members[-1].position != turn:
            break
        begin = turn
    if begin is not None:
        return and_(messages.c.position >= begin, messages.c.position <= rows[0].position)
    if not rows or node.remembers_messages < 2:
        return None
    ends = messages.c.position.in_([rows[0].turn, rows[0].position])
    return and_(ends, messages.c.characters <= node.remembers_characters // 2)
