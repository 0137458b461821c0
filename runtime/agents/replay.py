"""Replay: a graph driven by the record of a run. No tool is called, no model asked, nothing written."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from baobab.runtime.agents.child_runs import derive_child_id
from baobab.runtime.agents.failures import CallDenied, RunFailed, ToolFailed
from baobab.runtime.agents.graph import compile_graph
from baobab.runtime.agents.run_record import Event, RunRecord, load_record
from baobab.runtime.agents.run_session import CallResult, Message, ModelAnswer, RecalledMessages, RunResult, RunSession
from baobab.runtime.agents.spec import AgentNode, GraphSpec, LlmNode, NamedApprovers, ToolRef
from baobab.runtime.agents.state import build_initial_state
from baobab.storage.database import Database

_CALLS = ("tool_call_start", "tool_call_end")
_COMPARED_EVENTS = ("run_start", "node_start", "node_end", *_CALLS, "run_failed", "run_end")


class ResultNotRecorded(Exception):
    """A result was too large to be kept."""


@dataclass(frozen=True, slots=True)
class Replay:
    """lines: `  ` before an event that the run told and the replay tells, `- ` for the run alone, `+ ` for the replay.

    Who was told first of calls that were made side by side does not matter, nor what waited for a person.
    """

    lines: list[str]
    same: bool


class _RecordExhausted(Exception):
    """The run did not get further, or not here."""


async def replay_run(database: Database, run: Any, graph: Mapping[str, Any] | None = None) -> Replay:
    """Replay an ended run: its row. graph: in place of the run's own. Unrecorded."""
    record = await load_record(database, run, GraphSpec.model_validate_json(json.dumps(run.graph_spec)))
    replayer = _Replayer(run, record)
    await replayer.replay_graph(run.graph_spec if graph is None else graph)
    then, now = _render_lines(record.events), _render_lines(replayer.events)
    return Replay(_diff_lines(then, now), then == now)


@dataclass(slots=True)
class _Replayer:
    """The journal and the toolbox of a run that only remembers."""

    run: Any
    record: RunRecord
    events: list[Event] = field(default_factory=list)
    _emitted_subjects: set[str] = field(default_factory=set)

    async def replay_graph(self, graph: Mapping[str, Any]) -> None:
        run = self.run
        origin = {"forked_from": run.forked_from, "step": run.forked_step} if run.forked_from else {}
        self.emit_event("run_start", {"input": run.input, **origin})
        saver: Any = _ReplaySaver()
        config: Any = {"configurable": {"thread_id": run.id, "checkpoint_ns": ""}, "recursion_limit": 100_000}
        given: Any = build_initial_state(run.input)
        if self.record.initial_checkpoint is not None:
            checkpoint, about = self.record.initial_checkpoint
            saver.put(config, checkpoint, about, checkpoint["channel_versions"])
            given = None
        last: dict[str, Any] = {}
        session: Any = RunSession(self, self, self, asyncio.Semaphore())
        try:
            async for state in compile_graph(graph, saver).astream(
                given, config, context=session, stream_mode="values"
            ):
                last = state
        except _RecordExhausted:
            # Of one that was cancelled, or whose model or time failed it: that is not the graph's doing.
            self.events += [event for event in self.record.events[-1:] if event["type"] == "run_failed"]
        except RunFailed as failed:
            self.emit_event("run_failed", failed.event)
        else:
            self.emit_event("run_end", {"output": last.get("output")})

    def emit_event(self, type_: str, payload: Mapping[str, Any], subject: str | None = None) -> bool:
        if subject in self._emitted_subjects or payload.get("call_id") in self.record.inherited:
            return False
        if subject is not None:
            self._emitted_subjects.add(subject)
        self.events.append({"type": type_, "payload": payload})
        return True

    def taint(self) -> None:
        """It stands in the event."""

    async def flush(self) -> None:
        """Nobody reads along."""

    async def call_tool(
        self,
        ref: ToolRef,
        arguments: Mapping[str, Any],
        call_id: str,
        *,
        tainted: bool,
        approvers: NamedApprovers | None = None,
    ) -> CallResult:
        recorded = self._get_recorded(ref.name, call_id)
        if recorded["status"] == "denied":
            raise CallDenied(recorded["error"]["message"])
        if recorded["status"] == "error":
            raise ToolFailed(recorded["error"], recorded.get("args"))
        return CallResult(recorded["result"], recorded.get("args"))

    async def run_agent(self, node: AgentNode, given: Mapping[str, Any], call_id: str, *, tainted: bool) -> RunResult:
        recorded = self._get_recorded(node.agent, call_id)
        if recorded["status"] == "error":
            raise RunFailed(recorded["error"]["code"], recorded["error"]["message"])
        return RunResult(recorded["result"], recorded.get("tainted", False))

    def get_child_id(self, call_id: str) -> str:
        return derive_child_id(self.run.id, call_id)

    def redact_arguments(self, ref: ToolRef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return arguments

    def get_server_name(self, ref: ToolRef, call_id: str) -> str | None:
        recorded = self.record.calls.get(call_id) or self.record.inherited.get(call_id) or {}
        return recorded.get("server")

    def is_tainting(self, ref: ToolRef) -> bool:
        calls = self.record.calls.values()
        return any(call.get("tainted") for call in calls if call["tool_name"] == ref.name)

    async def ask_model(self, node: LlmNode, messages: Sequence[Message], step: int) -> ModelAnswer:
        if step not in self.record.answers:
            raise _RecordExhausted
        return ModelAnswer(self.record.answers[step])

    async def recall_messages(self, node_id: str, node: LlmNode, until: int | None) -> RecalledMessages:
        """What models are asked is not compared."""
        return RecalledMessages()

    def _get_recorded(self, name: str, call_id: str) -> Mapping[str, Any]:
        recorded = self.record.calls.get(call_id) or self.record.inherited.get(call_id)
        if recorded is None or recorded["tool_name"] != name:
            raise _RecordExhausted
        if recorded["status"] == "ok" and "result" not in recorded:
            raise ResultNotRecorded(f"call {call_id} of {name} returned {recorded['result_characters']} characters")
        return recorded


class _ReplaySaver(InMemorySaver):
    """Counts versions as runs do: a fork begins with a checkpoint of theirs."""

    def get_next_version(self, current: Any, channel: None) -> Any:
        return BaseCheckpointSaver.get_next_version(self, current, channel)


def _render_lines(events: Sequence[Event]) -> list[str]:
    """Events as texts; those of calls that stand together in the order of the calls."""
    lines: list[str] = []
    calls: list[tuple[Any, str]] = []
    for event in events:
        type_, payload = event["type"], event["payload"]
        if type_ not in _COMPARED_EVENTS:
            continue
        # How long a call takes, what its run is called and whose words are told is no part of what a graph does.
        payload = {name: value for name, value in payload.items() if name not in ("duration_ms", "run_id", "quotes")}
        line = f"{type_} {json.dumps(payload, sort_keys=True, ensure_ascii=False)}"
        if type_ in _CALLS:
            calls.append(((*map(int, payload["call_id"].split(".")), type_ == "tool_call_end"), line))
            continue
        lines += [text for _, text in sorted(calls)]
        calls.clear()
        lines.append(line)
    return lines + [text for _, text in sorted(calls)]


def _diff_lines(then: list[str], now: list[str]) -> list[str]:
    lines: list[str] = []
    for kind, start, end, start_now, end_now in SequenceMatcher(None, then, now, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [f"  {line}" for line in then[start:end]]
        else:
            lines += [f"- {line}" for line in then[start:end]]
            lines += [f"+ {line}" for line in now[start_now:end_now]]
    return lines
