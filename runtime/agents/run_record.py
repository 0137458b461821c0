"""The record of a run that has ended: the answers of its models by step, and the results of its calls by call id.

It is read from what a run stores anyway: events hold results of calls up to 64 KB, checkpoints the answers of models.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.checkpoint_json import loads
from baobab.runtime.agents.pieces import read_pieces
from baobab.runtime.agents.run_session import Message
from baobab.runtime.agents.spec.spec import GraphSpec, LlmNode
from baobab.runtime.agents.tables import checkpoints, events
from baobab.storage.sql.database import Database

Event = dict[str, Any]


@dataclass(slots=True)
class RunRecord:
    """events: oldest first; calls: the payload of each `tool_call_end`, by call id; answers: by step."""

    events: list[Event] = field(default_factory=list)
    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: dict[int, Message] = field(default_factory=dict)
    finish_reasons: dict[int, str | None] = field(default_factory=dict)
    """Why the models stopped, by step."""
    inherited_calls: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The `calls` of the run that this one was forked from, which this run did not repeat."""
    initial_checkpoint: tuple[dict[str, Any], Any] | None = None
    """The checkpoint that a forked run began with, and its metadata."""


async def load_record(database: Database, run: Any, spec: GraphSpec) -> RunRecord:
    """Loads the record of a run. Reads one checkpoint at a time, because each holds the whole state."""
    record, models = RunRecord(), {key: node for key, node in spec.nodes.items() if isinstance(node, LlmNode)}
    async with database.reading() as connection:
        of_app = events.c.app_id == run.app_id
        query = select(events).where(of_app, events.c.run_id == run.id).order_by(events.c.seq)
        for row in (await connection.execute(query)).all():
            record.events.append({"type": row.type, "payload": row.payload})
            if row.type == "llm_token_usage":
                record.finish_reasons[row.payload.get("step", 0)] = row.payload.get("finish_reason")
            if row.type == "tool_call_end":
                record.calls[row.payload["call_id"]] = row.payload
        if run.forked_from is not None:
            own_call_ids = {event["payload"].get("call_id") for event in record.events}
            inherited_ends = (of_app, events.c.run_id == run.forked_from, events.c.type == "tool_call_end")
            for payload in (await connection.execute(select(events.c.payload).where(*inherited_ends))).scalars():
                step, _, call = payload["call_id"].partition(".")
                if call and int(step) == run.forked_step and payload["call_id"] not in own_call_ids:
                    record.inherited_calls[payload["call_id"]] = payload
        of_run = (
            checkpoints.c.app_id == run.app_id,
            checkpoints.c.thread_id == run.id,
            checkpoints.c.namespace == "",
        )
        ids = (await connection.execute(select(checkpoints.c.id).where(*of_run).order_by(checkpoints.c.id))).scalars()
        models_by_step = {
            event["payload"]["step"]: models[event["payload"]["node_id"]]
            for event in record.events
            if event["type"] == "node_end" and event["payload"]["node_id"] in models
        }
        before: dict[str, Any] = {}
        for checkpoint_id in ids.all():
            checkpoint_query = select(checkpoints).where(*of_run, checkpoints.c.id == checkpoint_id)
            row = (await connection.execute(checkpoint_query)).one()
            texts_by_digest = await read_pieces(connection.execute, run.app_id, [run.id], [row.checkpoint])
            checkpoint = loads(row.checkpoint, texts_by_digest)
            state = checkpoint["channel_values"]
            if "steps" not in state:
                continue
            if not before and run.forked_from is not None:
                record.initial_checkpoint = (checkpoint, row.about)
            _add_answer(record, before, state, models_by_step)
            before = state
    return record


def _add_answer(
    record: RunRecord, before: Mapping[str, Any], state: Mapping[str, Any], models_by_step: Mapping[int, LlmNode]
) -> None:
    """Adds a model's answer from between two checkpoints: in `talks` while it calls tools, else in the key that it
    writes.
    """
    step = state["steps"]
    if not before or step == before["steps"]:
        return
    if step in models_by_step:
        node = models_by_step[step]
        value = state["state"][node.output_key]
        record.answers[step] = {
            "role": "assistant",
            "content": value if node.output_schema is None else json.dumps(value),
        }
        return
    for node_id, talk in state["talks"].items():
        if len(talk) <= len(before["talks"].get(node_id) or ()):
            continue
        # An answer that did not match its schema is followed by the request to repair it.
        message = talk[-2] if talk[-1]["role"] == "user" else talk[-1]
        if message["role"] == "assistant" and (message is not talk[-1] or message.get("tool_calls")):
            record.answers[step] = message
