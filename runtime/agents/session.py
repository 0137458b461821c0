"""What the nodes of a graph work with, for one segment of one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from baobab.runtime.agents.spec import AgentNode, LlmNode, ToolRef

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's: one message in the form of OpenAI's chat completions."""

    message: Message


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a run of another agent. tainted: whether it has read text from outside."""

    output: Any
    tainted: bool


class Teller(Protocol):
    """Who is told what the run does: the journal of a run, as a rule."""

    def tell(self, type_: str, payload: Mapping[str, Any], subject: str | None = None) -> bool:
        """Whether it was news: of one subject is told once."""
        ...

    def taint(self) -> None: ...

    async def flush(self) -> None:
        """Return when what was told can be seen."""
        ...


class Toolbox(Protocol):
    """Tools and models, as the run's caller may use them."""

    async def call(self, ref: ToolRef, arguments: Mapping[str, Any], call_id: str, *, tainted: bool) -> Any:
        """The result. Waiting, Limited, Denied, TimedOut, ToolFailed."""
        ...

    def taints(self, ref: ToolRef) -> bool:
        """Whether results of the tool hold text from outside."""
        ...

    async def delegate(self, node: AgentNode, given: Mapping[str, Any], call_id: str, *, tainted: bool) -> Outcome:
        """What a run of another agent returned. Delegated, RunFailed."""
        ...

    async def ask(self, node: LlmNode, messages: Sequence[Message], step: int) -> Answer:
        """Limited, RunFailed where no model answers."""
        ...


@dataclass(frozen=True, slots=True)
class Session:
    journal: Teller
    toolbox: Toolbox
    earlier: Mapping[str, list[Message]]
    """What nodes that remember have said in earlier runs of the same thread, by node."""
    earlier_tainted: bool = False
    """Whether those had read text from outside."""
