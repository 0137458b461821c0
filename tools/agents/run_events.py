"""Events of runs: as a list, and as a stream that ends with the run."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from pydantic_core import to_json
from sqlalchemy import bindparam, select

from baobab.runtime.agents.live_text import LiveText, LiveTexts
from baobab.runtime.agents.run_watcher import RunWatcher
from baobab.runtime.agents.tables import AGENT_OF_RUN, ENDED, agents, events, runs
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.tools.agents.fields import PAGE
from baobab.tools.agents.redaction import is_outsider, redact_event
from baobab.tools.agents.run_ownership import is_agent_available
from baobab.tools.agents.schemas.agents import Events
from baobab.tools.agents.tokens import approval_token
from baobab.tools.core import Anonymous, Call, Caller, EndUser, Services
from baobab.tools.core.auth.deciders import ADMIN, STARTER, Decider, PendingDecision
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.stream import Stream

_LIST_EVENTS = (
    select(events)
    .where(events.c.app_id == bindparam("app"), events.c.run_id == bindparam("run"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("most"))
)
_FIND_STATE = select(runs.c.status, runs.c.last_seq).where(
    runs.c.app_id == bindparam("app"), runs.c.id == bindparam("run")
)
_BEAT_SECONDS = 15.0
_PIECE_SECONDS = 0.03
"""The least time between two pieces of an answer."""
_PATIENCE_SECONDS = 2.0


async def read_events(
    services: Services, database: Database, run: Any, after: int, limit: int, reader: Decider
) -> list[dict[str, Any]]:
    """Lists events after a seq, oldest first, with approval tokens only for readers who may decide. run: its row."""
    values = {"app": run.app_id, "run": run.id, "after": after, "most": limit}
    rows = (await database.execute(_LIST_EVENTS, values)).all()
    visible_events = (
        {
            "seq": row.seq,
            "type": row.type,
            "payload": _payload(services, run, row, reader),
            "created_at": row.created_at,
        }
        for row in rows
    )
    return [redact_event(reader.caller, event) for event in visible_events]


async def follow_events(
    services: Services, database: Database, run: Any, after: int, reader: Decider
) -> AsyncGenerator[Any, None]:
    """Yields the events after a seq until the run ends; None after a while without events.

    A seq that the run has not reached is taken for its latest: after a failure of power it may stand behind what was
    told.
    """
    exists = False
    texts, answers = services.of(LiveTexts), _AnswerReader(reader.caller)
    with services.of(RunWatcher).subscribe(run.id, database) as subscription:
        while True:
            must_read = subscription.has_events
            subscription.clear()
            # Found before the events are read: what it follows on has been written before it began.
            text = texts.find(run.id)
            try:
                if must_read:
                    # Read before the events: if the run ends in between, all its events are read.
                    status, latest = await _read_run_state(database, run)
                    after, exists = after if exists else min(after, latest), True
                    while events := await read_events(services, database, run, after, PAGE, reader):
                        for event in events:
                            if event["type"] == "llm_token_usage":
                                answer_rest = answers.read_rest(
                                    await texts.load(run.id, database), event["payload"]["step"]
                                )
                                if answer_rest is not None:
                                    yield answer_rest
                            yield event
                        after = events[-1]["seq"]
                    if status in ENDED:
                        return
                    if status == "running":
                        await texts.follow(run.id, database)
            except DatabaseUnavailable:
                subscription.tell(has_events=True)
                await asyncio.sleep(_PATIENCE_SECONDS)
                continue
            if (piece := answers.read_piece(text)) is not None:
                yield piece
                await asyncio.sleep(_PIECE_SECONDS)
            try:
                async with asyncio.timeout(_BEAT_SECONDS):
                    await subscription.wait()
            except TimeoutError:
                subscription.tell(has_events=True)
                yield None


class _AnswerReader:
    """Keeps how much of the text that a run's model is writing one reader has received."""

    def __init__(self, caller: Caller) -> None:
        self._is_outsider = is_outsider(caller)
        self._text: LiveText | None = None
        self._attempt = self._length = 0

    def read_piece(self, text: LiveText | None) -> dict[str, Any] | None:
        """Returns an event with what has been added to a text; None if that is nothing, or the text has ended."""
        return None if text is None or text.has_ended else self._read(text)

    def read_rest(self, text: LiveText | None, step: int) -> dict[str, Any] | None:
        """Returns an event with the end of the text of a step."""
        return None if text is None or text.step != step else self._read(text)

    def _read(self, text: LiveText) -> dict[str, Any] | None:
        if self._is_outsider and not text.is_output:
            return None
        if text is not self._text or text.attempt != self._attempt:
            self._text, self._attempt, self._length = text, text.attempt, 0
        offset, piece = self._length, text.read(self._length)
        self._length += len(piece)
        payload = {"node_id": text.node_id, "step": text.step, "offset": offset, "text": piece}
        return {"type": "llm_delta", "payload": payload} if piece else None


async def encode_sse(events: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    """Yields the events as server-sent events, whose id is the seq."""
    try:
        yield b"retry: 1000\n\n"
        async for event in events:
            if event is None:
                yield b": \n\n"
                continue
            # An event that is not stored has no id, so a client that comes back continues after the last stored one.
            id_line = b"id: %d\n" % event["seq"] if "seq" in event else b""
            yield b"%sevent: %s\ndata: %s\n\n" % (id_line, event["type"].encode(), to_json(event["payload"]))
    finally:
        await events.aclose()


async def encode_json_frames(events: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    """Yields the events as JSON texts."""
    try:
        async for event in events:
            if event is not None:
                yield to_json(event)
    finally:
        await events.aclose()


async def list_events(call: Call, run: Any, after: int, limit: int) -> Events:
    reader = Decider(call.caller, call.role)
    events: Any = await read_events(call.services, call.stores.database, run, after, min(limit, PAGE), reader)
    return {"events": events}


def stream_events(call: Call, run: Any, last_event_id: str | None, reader: Decider, since_seq: int = 0) -> str:
    """Streams server-sent events after the seq that the client names in the header or the query; else all of them."""
    position = last_event_id or ""
    after = int(position) if position.isascii() and position.isdigit() else since_seq
    return cast(str, Stream(encode_sse(_follow_visible(call, run, after, reader)), subject=run.id))


def stream_socket(call: Call, run: Any, after: int, reader: Decider) -> str:
    """Yields the frames of a WebSocket."""
    return cast(
        str, Stream(encode_json_frames(_follow_visible(call, run, after, reader)), "application/json", subject=run.id)
    )


async def _follow_visible(call: Call, run: Any, after: int, reader: Decider) -> AsyncGenerator[Any, None]:
    """Yields the events of `follow_events`; to users and visitors only while the agent is for them."""
    database, by_visitor = call.stores.database, is_visitor(run, reader)
    is_outside = by_visitor or isinstance(call.caller, (Anonymous, EndUser))
    loop = asyncio.get_running_loop()
    async with aclosing(follow_events(call.services, database, run, after, reader)) as events:
        checked_at = loop.time()
        async for event in events:
            # Without events there is a heartbeat, so that this is checked every 15 seconds at the latest.
            if is_outside and (event is None or loop.time() - checked_at > _BEAT_SECONDS):
                if await _is_closed(database, run, by_visitor=by_visitor):
                    return
                checked_at = loop.time()
            yield event


def is_visitor(run: Any, reader: Decider) -> bool:
    """Returns whether somebody reads a visitor's run with the visitor's stream token."""
    return run.caller_kind == "anonymous" and isinstance(reader.caller, Anonymous)


async def _is_closed(database: Database, run: Any, *, by_visitor: bool) -> bool:
    """Returns whether the reader has lost access: the agent is deleted or not for such readers any more, or a visitor
    must now sign in.
    """
    # Other runs than a visitor's are read by a user, or by whom an app's server has given the token.
    reader = Anonymous(run.app_id) if by_visitor else EndUser(run.app_id, "")
    query = select(agents.c.visibility, apps.c.access_mode).join(runs, AGENT_OF_RUN)
    query = query.join(apps, apps.c.id == runs.c.app_id).where(runs.c.id == run.id)
    async with database.reading() as connection:
        row = (await connection.execute(query)).first()
    if row is None or not is_agent_available(row.visibility, reader):
        return True
    return by_visitor and row.access_mode == "authenticated"


def _payload(services: Services, run: Any, row: Any, reader: Decider) -> dict[str, Any]:
    payload = dict(row.payload)
    # Pauses of an earlier release do not say who decides.
    default = ADMIN if payload.get("tool_source") == "mcp" else STARTER
    approvers, as_app = payload.get("approvers", default), "run_as" in payload
    if row.type == "run_paused" and reader.may(PendingDecision.of_run(run, approvers, as_app=as_app)):
        # The call may belong to a child run, which says who decides.
        asking_run_id = payload.get("run_id", row.run_id)
        payload["approval_token"] = approval_token(services.vault, asking_run_id, payload["approval_id"])
    if row.type == "run_paused":
        # The contract has these fields in both places.
        payload["payload"] = dict(payload)
    return payload


async def _read_run_state(database: Database, run: Any) -> tuple[str, int]:
    """Returns the run's status, and the seq of its latest event."""
    rows = (await database.execute(_FIND_STATE, {"app": run.app_id, "run": run.id})).all()
    return (rows[0].status, rows[0].last_seq) if rows else ("cancelled", 0)
