"""Replay: a graph driven by the record of a run. No tool is called, no model asked, nothing written."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from baobab.runtime.agents.children import child_id
from baobab.runtime.agents.failures import Denied, RunFailed, ToolFailed
from baobab.runtime.agents.graph import compiled
from baobab.runtime.agents.record import Event, Record, recorded
from baobab.runtime.agents.session import Answer, CallResult, Message, Outcome, Recalled, Session
from baobab.runtime.agents.spec import AgentNode, GraphSpec, LlmNode, NamedApprovers, ToolRef
from baobab.runtime.agents.state import begun
from baobab.storage.database import Database

_CALLS = ("tool_call_start", "tool_call_end")
_COMPARED = ("run_start", "node_start", "node_end", *_CALLS, "run_failed", "run_end")


class Unrecorded(Exception):
    """A result was too large to be kept."""


@dataclass(frozen=True, slots=True)
class Replay:
    """lines: `  ` before an event that the run told and the replay tells, `- ` for the run alone, `+ ` for the replay.

    Who was told first of calls that were made side by side does not matter, nor what waited for a person.
    """

    lines: list[str]
    same: bool


class _RecordEnds(Exception):
    """The run did not get further, or not here."""


async def replayed(database: Database, run: Any, graph: Mapping[str, Any] | None = None) -> Replay:
    """Replay an ended run: its row. graph: in place of the run's own. Unrecorded."""
    record = await recorded(database, run, GraphSpec.model_validate_json(json.dumps(run.graph_spec)))
    player = _Player(run, record)
    await player.play(run.graph_spec if graph is None else graph)
    then, now = _lines(record.told), _lines(player.told)
    return Replay(_compared(then, now), then == now)


@dataclass(slots=True)
class _Player:
    """The journal and the toolbox of a run that only remembers."""

    run: Any
    record: Record
    told: list[Event] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    async def play(self, graph: Mapping[str, Any]) -> None:
        run = self.run
        origin = {"forked_from": run.forked_from, "step": run.forked_step} if run.forked_from else {}
        self.tell("run_start", {"input": run.input, **origin})
        saver: Any = _Memory()
        config: Any = {"configurable": {"thread_id": run.id, "checkpoint_ns": ""}, "recursion_limit": 100_000}
        given: Any = begun(run.input)
        if self.record.beginning is not None:
            checkpoint, about = self.record.beginning
            saver.put(config, checkpoint, about, checkpoint["channel_versions"])
            given = None
        last: dict[str, Any] = {}
        session: Any = Session(self, self, self, asyncio.Semaphore())
        try:
            async for state in compiled(graph, saver).astream(given, config, context=session, stream_mode="values"):
                last = state
        except _RecordEnds:
            # Of one that was cancelled, or whose model or time failed it: that is not the graph's doing.
            self.told += [event for event in self.record.told[-1:] if event["type"] == "run_failed"]
        except RunFailed as failed:
            self.tell("run_failed", failed.event)
        else:
            self.tell("run_end", {"output": last.get("output")})

    def tell(self, type_: str, payload: Mapping[str, Any], subject: str | None = None) -> bool:
        if subject in self._known or payload.get("call_id") in self.record.inherited:
            return False
        if subject is not None:
            self._known.add(subject)
        self.told.append({"type": type_, "payload": payload})
        return True

    def taint(self) -> None:
        """It stands in the event."""

    async def flush(self) -> None:
        """Nobody reads along."""

    async def call(
        self,
        ref: ToolRef,
        arguments: Mapping[str, Any],
        call_id: str,
        *,
        tainted: bool,
        approvers: NamedApprovers | None = None,
    ) -> CallResult:
        kept = self._kept(ref.name, call_id)
        if kept["status"] == "denied":
            raise Denied(kept["error"]["message"])
        if kept["status"] == "error":
            raise ToolFailed(kept["error"], kept.get("args"))
        return CallResult(kept["result"], kept.get("args"))

    async def delegate(self, node: AgentNode, given: Mapping[str, Any], call_id: str, *, tainted: bool) -> Outcome:
        kept = self._kept(node.agent, call_id)
        if kept["status"] == "error":
            raise RunFailed(kept["error"]["code"], kept["error"]["message"])
        return Outcome(kept["result"], kept.get("tainted", False))

    def child_id(self, call_id: str) -> str:
        return child_id(self.run.id, call_id)

    def shown(self, ref: ToolRef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return arguments

    def server(self, ref: ToolRef, call_id: str) -> str | None:
        kept = self.record.calls.get(call_id) or self.record.inherited.get(call_id) or {}
        return kept.get("server")

    def taints(self, ref: ToolRef) -> bool:
        calls = self.record.calls.values()
        return any(call.get("tainted") for call in calls if call["tool_name"] == ref.name)

    async def ask(self, node: LlmNode, messages: Sequence[Message], step: int) -> Answer:
        if step not in self.record.answers:
            raise _RecordEnds
        return Answer(self.record.answers[step])

    async def recall(self, node_id: str, node: LlmNode, until: int | None) -> Recalled:
        """What models are asked is not compared."""
        return Recalled()

    def _kept(self, name: str, call_id: str) -> Mapping[str, Any]:
        kept = self.record.calls.get(call_id) or self.record.inherited.get(call_id)
        if kept is None or kept["tool_name"] != name:
            raise _RecordEnds
        if kept["status"] == "ok" and "result" not in kept:
            raise Unrecorded(f"call {call_id} of {name} returned {kept['result_characters']} characters")
        return kept


class _Memory(InMemorySaver):
    """Counts versions as runs do: a fork begins with a checkpoint of theirs."""

    def get_next_version(self, current: Any, channel: None) -> Any:
        return BaseCheckpointSaver.get_next_version(self, current, channel)


def _lines(told: Sequence[Event]) -> list[str]:
    """Events as texts; those of calls that stand together in the order of the calls."""
    lines: list[str] = []
    calls: list[tuple[Any, str]] = []
    for event in told:
        type_, payload = event["type"], event["payload"]
        if type_ not in _COMPARED:
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


def _compared(then: list[str], now: list[str]) -> list[str]:
    lines: list[str] = []
    for kind, start, end, start_now, end_now in SequenceMatcher(None, then, now, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [f"  {line}" for line in then[start:end]]
        else:
            lines += [f"- {line}" for line in then[start:end]]
            lines += [f"+ {line}" for line in now[start_now:end_now]]
    return lines
