"""What the nodes of a graph work with, for one segment of one run."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from baobab.runtime.agents.spec import AgentNode, LlmNode, NamedApprovers, ToolRef

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's: one message in the form of OpenAI's chat completions."""

    message: Message


@dataclass(frozen=True, slots=True)
class CallResult:
    """Of a tool. arguments: those that a person gave in place of what the run wanted, where one did."""

    value: Any
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """Of a run of another agent. tainted: whether it has read text from outside."""

    output: Any
    tainted: bool


class EventEmitter(Protocol):
    """Who is told what the run does: the journal of a run, as a rule."""

    def emit_event(self, type_: str, payload: Mapping[str, Any], subject: str | None = None) -> bool:
        """Whether it was news: of one subject is told once."""
        ...

    def taint(self) -> None: ...

    async def flush(self) -> None:
        """Return when what was told can be seen."""
        ...


class Toolbox(Protocol):
    """Tools and models, as the run's caller may use them."""

    async def call_tool(
        self,
        ref: ToolRef,
        arguments: Mapping[str, Any],
        call_id: str,
        *,
        tainted: bool,
        approvers: NamedApprovers | None = None,
    ) -> CallResult:
        """The result. approvers: of the node. Waiting, Limited, Denied, TimedOut, ToolFailed."""
        ...

    def redact_arguments(self, ref: ToolRef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call as people may see them: without secrets."""
        ...

    def is_tainting(self, ref: ToolRef) -> bool:
        """Whether results of the tool hold text from outside."""
        ...

    def get_server_name(self, ref: ToolRef, call_id: str) -> str | None:
        """The name of the tool server that a call goes to; None for a tool of ours."""
        ...

    async def run_agent(self, node: AgentNode, given: Mapping[str, Any], call_id: str, *, tainted: bool) -> RunResult:
        """What a run of another agent returned. Delegated, RunFailed."""
        ...

    def get_child_id(self, call_id: str) -> str:
        """The id of the run that `delegate` begins."""
        ...

    async def ask_model(self, node: LlmNode, messages: Sequence[Message], step: int) -> ModelAnswer:
        """Limited, RunFailed where no model answers."""
        ...


@dataclass(frozen=True, slots=True)
class RecalledMessages:
    """Earlier messages of a node's conversation, oldest first.

    position: how far the conversation had come when they were read; tainted: whether a run that added one of them had
    read text from outside.
    """

    messages: Sequence[Message] = ()
    position: int = 0
    tainted: bool = False


class Memory(Protocol):
    """The conversation that a run belongs to."""

    async def recall_messages(self, node_id: str, node: LlmNode, until: int | None) -> RecalledMessages:
        """Read what the node is to be reminded of. until: the position up to which; None reads all there is by now."""
        ...


@dataclass(frozen=True, slots=True)
class RunSession:
    """turns: for how many calls are made at the same time.

    LangGraph's own `max_concurrency` is not used: cancelled, it leaves behind what had not begun, its checkpoints too.
    """

    event_log: EventEmitter
    toolbox: Toolbox
    memory: Memory
    call_slots: asyncio.Semaphore
