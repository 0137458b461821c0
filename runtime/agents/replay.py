"""Replay: runs a graph with the recorded results of a run. No tool or model is called, and nothing is written."""

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
from baobab.runtime.agents.model_answers import ModelAnswer
from baobab.runtime.agents.run_record import Event, RunRecord, load_record
from baobab.runtime.agents.run_session import CallResult, Message, RecalledMessages, RunResult, RunSession
from baobab.runtime.agents.spec.announcements import CallingNode
from baobab.runtime.agents.spec.spec import AgentNode, GraphSpec, LlmNode, NamedApprovers, ToolRef
from baobab.runtime.agents.state import build_initial_state
from baobab.storage.sql.database import Database

_CALLS = ("tool_call_start", "tool_call_end")
_COMPARED_EVENTS = ("run_start", "node_start", "node_end", *_CALLS, "run_failed", "run_end")


class ResultNotRecorded(Exception):
    """A result was too large to be recorded."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The events of a run and of its replay, as a diff.

    lines: begin with `  ` for an event of both, with `- ` for one of the run alone, with `+ ` for one of the replay.
    The order of parallel calls does not matter, nor what waited for a person.
    """

    lines: list[str]
    same: bool


class _RecordExhausted(Exception):
    """The replay needs a result that the run has not recorded, because the run ended earlier or took another path."""


async def replay_run(database: Database, run: Any, graph: Mapping[str, Any] | None = None) -> Replay:
    """Replays an ended run. run: its row; graph: used in place of the run's own. Raises ResultNotRecorded."""
    record = await load_record(database, run, GraphSpec.model_validate_json(json.dumps(run.graph_spec)))
    replayer = _Replayer(run, record)
    await replayer.replay_graph(run.graph_spec if graph is None else graph)
    recorded_lines, replayed_lines = _render_lines(record.events), _render_lines(replayer.events)
    return Replay(_diff_lines(recorded_lines, replayed_lines), recorded_lines == replayed_lines)


@dataclass(slots=True)
class _Replayer:
    """The event log, toolbox and memory of a replay: it answers from the record and collects events."""

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
        graph_input: Any = build_initial_state(run.input)
        if self.record.initial_checkpoint is not None:
            checkpoint, metadata = self.record.initial_checkpoint
            saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
            graph_input = None
        final_state: dict[str, Any] = {}
        session: Any = RunSession(self, self, self, asyncio.Semaphore())
        try:
            async for state in compile_graph(json.dumps(graph, sort_keys=True), saver).astream(
                graph_input, config, context=session, stream_mode="values"
            ):
                final_state = state
        except _RecordExhausted:
            # The run failed at this point for a reason outside the graph, such as its model or its timeout.
            self.events += [event for event in self.record.events[-1:] if event["type"] == "run_failed"]
        except RunFailed as failed:
            self.emit_event("run_failed", failed.event)
        else:
            incomplete = final_state.get("incomplete")
            mark = {} if incomplete is None else {"incomplete": incomplete}
            self.emit_event("run_end", {"output": final_state.get("output"), **mark})

    def emit_event(self, type_: str, payload: Mapping[str, Any], subject: str | None = None) -> bool:
        if subject in self._emitted_subjects or payload.get("call_id") in self.record.inherited_calls:
            return False
        if subject is not None:
            self._emitted_subjects.add(subject)
        self.events.append({"type": type_, "payload": payload})
        return True

    def taint(self) -> None:
        """Does nothing: the events themselves say what is tainted."""

    async def flush(self) -> None:
        """Does nothing: nobody follows a replay."""

    async def call_tool(
        self,
        ref: ToolRef,
        arguments: Mapping[str, Any],
        call_id: str,
        *,
        tainted: bool,
        approvers: NamedApprovers | None = None,
        calling: CallingNode | None = None,
    ) -> CallResult:
        recorded_call = self._get_recorded(ref.name, call_id)
        if recorded_call["status"] == "denied":
            raise CallDenied(recorded_call["error"]["message"])
        if recorded_call["status"] == "error":
            raise ToolFailed(recorded_call["error"], recorded_call.get("args"))
        return CallResult(
            recorded_call["result"],
            recorded_call.get("args"),
            recorded_call.get("warnings", ()),
            recorded_call.get("tainted", False),
            recorded_call.get("read", ()),
        )

    async def run_agent(
        self, node: AgentNode, input_values: Mapping[str, Any], call_id: str, *, tainted: bool
    ) -> RunResult:
        recorded_call = self._get_recorded(node.agent, call_id)
        if recorded_call["status"] == "error":
            raise RunFailed(recorded_call["error"]["code"], recorded_call["error"]["message"])
        return RunResult(recorded_call["result"], recorded_call.get("tainted", False), recorded_call.get("incomplete"))

    def get_child_id(self, call_id: str) -> str:
        return derive_child_id(self.run.id, call_id)

    def redact_arguments(self, ref: ToolRef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return arguments

    def get_server_name(self, ref: ToolRef, call_id: str) -> str | None:
        recorded_call = self.record.calls.get(call_id) or self.record.inherited_calls.get(call_id) or {}
        return recorded_call.get("server")

    async def ask_model(self, node_id: str, node: LlmNode, messages: Sequence[Message], step: int) -> ModelAnswer:
        if step not in self.record.answers:
            raise _RecordExhausted
        return ModelAnswer(self.record.answers[step], self.record.finish_reasons.get(step) or "")

    async def recall_messages(self, node_id: str, node: LlmNode, until: int | None) -> RecalledMessages:
        """Recalls nothing: the requests to models are not compared."""
        return RecalledMessages()

    def _get_recorded(self, name: str, call_id: str) -> Mapping[str, Any]:
        recorded_call = self.record.calls.get(call_id) or self.record.inherited_calls.get(call_id)
        if recorded_call is None or recorded_call["tool_name"] != name:
            raise _RecordExhausted
        if recorded_call["status"] == "ok" and "result" not in recorded_call:
            raise ResultNotRecorded(
                f"call {call_id} of {name} returned {recorded_call['result_characters']} characters"
            )
        return recorded_call


class _ReplaySaver(InMemorySaver):
    """Counts versions as the Checkpointer does, because a fork starts from a checkpoint of a run."""

    def get_next_version(self, current: Any, channel: None) -> Any:
        return BaseCheckpointSaver.get_next_version(self, current, channel)


def _render_lines(events: Sequence[Event]) -> list[str]:
    """Renders events as lines; events of parallel calls are in the order of their call ids."""
    lines: list[str] = []
    calls: list[tuple[Any, str]] = []
    for event in events:
        type_, payload = event["type"], event["payload"]
        if type_ not in _COMPARED_EVENTS:
            continue
        # Durations, ids of child runs and whether an error quotes somebody do not depend on the graph.
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
