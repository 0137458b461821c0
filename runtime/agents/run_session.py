"""The interfaces through which the nodes of a graph reach their run: events, tools, models and memory."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from baobab.runtime.agents.model_answers import ModelAnswer
from baobab.runtime.agents.spec.announcements import CallingNode
from baobab.runtime.agents.spec.spec import AgentNode, LlmNode, NamedApprovers, ToolRef

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallResult:
    """A tool's result. arguments: those that a person gave in place of the run's; None if nobody did. warnings: what
    the tool says about the result.
    """

    value: Any
    arguments: Mapping[str, Any] | None = None
    warnings: Sequence[str] = ()
    tainted: bool = False
    """Whether it may hold text from outside."""
    texts: Sequence[Mapping[str, Any]] = ()
    """The texts that the tool has read, as `ReadText.as_json` has them."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a child run. tainted: whether that run has read text from outside."""

    output: Any
    tainted: bool
    incomplete: Mapping[str, Any] | None = None
    """Which answer of a model in the child run was cut or lost."""
    milliseconds: int | None = None
    """From the start of the child run to its end."""


class EventEmitter(Protocol):
    """Receives the events of a run; usually its event log."""

    def emit_event(self, type_: str, payload: Mapping[str, Any], subject: str | None = None) -> bool:
        """Adds an event, unless there was one of this subject. Returns whether it was added."""
        ...

    def taint(self) -> None:
        """Marks the run as having read text from outside."""

    async def flush(self) -> None:
        """Writes the pending events and checkpoints: others see them, and a crash does not undo them."""
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
        calling: CallingNode | None = None,
    ) -> CallResult:
        """Calls a tool. approvers: the people whom the node names. calling: the node, unless a model calls.

        Raises ApprovalPending, RateLimited, CallDenied, RunTimedOut and ToolFailed.
        """
        ...

    def redact_arguments(self, ref: ToolRef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the arguments of a call as people may see them: without secrets."""
        ...

    def get_server_name(self, ref: ToolRef, call_id: str) -> str | None:
        """Returns the name of the tool server that a call goes to; None for a built-in tool."""
        ...

    async def run_agent(
        self, node: AgentNode, input_values: Mapping[str, Any], call_id: str, *, tainted: bool
    ) -> RunResult:
        """Returns the result of a child run. Raises ChildRunPending and RunFailed."""
        ...

    def get_child_id(self, call_id: str) -> str:
        """Returns the id of the child run that `run_agent` starts for a call."""
        ...

    async def ask_model(self, node_id: str, node: LlmNode, messages: Sequence[Message], step: int) -> ModelAnswer:
        """Asks a model. Raises RateLimited, and RunFailed where no model answers."""
        ...


@dataclass(frozen=True, slots=True)
class RecalledMessages:
    """Earlier messages of a node's conversation, oldest first.

    position: of the last one in the thread when they were read; tainted: whether a run that added one of them had read
    text from outside.
    """

    messages: Sequence[Message] = ()
    position: int = 0
    tainted: bool = False


class Memory(Protocol):
    """Reads the thread that a run belongs to."""

    async def recall_messages(self, node_id: str, node: LlmNode, until: int | None) -> RecalledMessages:
        """Reads earlier messages for a node. until: the last position to read; None for all of the thread."""
        ...


@dataclass(frozen=True, slots=True)
class RunSession:
    """The context of a graph: what its nodes use.

    call_slots: limits how many calls are made at the same time. LangGraph's `max_concurrency` is not used for that:
    when it is cancelled, it leaves tasks that have not started behind, and their checkpoints.
    """

    event_log: EventEmitter
    toolbox: Toolbox
    memory: Memory
    call_slots: asyncio.Semaphore
