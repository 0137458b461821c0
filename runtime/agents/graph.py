"""An agent's graph, compiled to LangGraph.

Each node of the graph is one node there; a model that has tools gets a second, of which every call is a task of its
own: those that wait for a person can be decided one by one, and those that are done are not done again. A node is
begun anew after a pause or a crash, so nothing in it takes effect before what it may have to wait for.
"""

import json
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, Send, interrupt

from baobab.runtime.agents.answer_schema import departure
from baobab.runtime.agents.bounds import unfit
from baobab.runtime.agents.conditions import Condition, ConditionError, Sight
from baobab.runtime.agents.failures import Delegated, Denied, Limited, RunFailed, ToolFailed, Waiting
from baobab.runtime.agents.offers import function_names
from baobab.runtime.agents.session import Answer, CallResult, Message, Outcome, Recalled, Session
from baobab.runtime.agents.spec import (
    AgentNode,
    EndNode,
    GraphSpec,
    LlmNode,
    MapNode,
    NamedApprovers,
    ToolNode,
    ToolRef,
)
from baobab.runtime.agents.templates import Template, TemplateError, rendered, rendered_each

_MOST_ITEMS = 1000
_MOST_RESULT = 256 * 1024
_GREATEST_KEPT = 64 * 1024
"""Characters of a result that an event tells."""
_REPAIR = "Answer again, with the JSON that was asked for and nothing else."
"""How a model is asked once more whose answer is not of its schema."""


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **other}


def _talked(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Messages are added to those of their node; None begins it anew."""
    return one | {node: [] if more is None else [*one.get(node, ()), *more] for node, more in other.items()}


class State(TypedDict, total=False):
    input: dict[str, Any]
    state: Annotated[dict[str, Any], _merged]
    talks: Annotated[dict[str, Any], _talked]
    said: Annotated[dict[str, Any], _talked]
    recalled: Annotated[dict[str, Any], _merged]
    items: Annotated[dict[str, Any], _merged]
    steps: Annotated[int, operator.add]
    calls: Annotated[int, operator.add]
    tainted: Annotated[bool, operator.or_]
    output: Any


Graph = CompiledStateGraph[Any, Any, Any, Any]


@lru_cache(maxsize=256)
def _compiled(text: str) -> Graph:
    return _Compiler(GraphSpec.model_validate_json(text)).graph.compile()


def compiled(spec: Mapping[str, Any], checkpointer: Any) -> Graph:
    """The graph of a valid spec. Its input is `begun`; its context a Session."""
    # To compile costs as much as a dozen steps; what is shared is only read.
    graph = copy(_compiled(json.dumps(spec, sort_keys=True)))
    graph.checkpointer = checkpointer
    return graph


def begun(given: Mapping[str, Any], *, tainted: bool = False) -> State:
    """The state in which a run begins. tainted: whether its input holds text from outside."""
    return {
        "input": dict(given),
        "state": {},
        "talks": {},
        "said": {},
        "recalled": {},
        "items": {},
        "steps": 0,
        "calls": 0,
        "tainted": tainted,
        "output": None,
    }


class _Compiler:
    def __init__(self, spec: GraphSpec) -> None:
        self._spec = spec
        # Names of nodes are anybody's text; LangGraph's are not.
        self._names = {node_id: f"n{index}" for index, node_id in enumerate(spec.nodes)}
        self._leads: dict[str, list[tuple[Condition | None, str]]] = {}
        for edge in spec.edges:
            condition = None if edge.when is None else Condition(edge.when)
            self._leads.setdefault(edge.from_, []).append((condition, self._names[edge.to]))
        self.graph: StateGraph[Any, Any, Any, Any] = StateGraph(State, context_schema=Session)
        for node_id, node in spec.nodes.items():
            name = self._names[node_id]
            match node:
                case LlmNode():
                    self.graph.add_node(name, self._thinking(node_id, node))
                    self.graph.add_node(f"{name}_tool", self._acting(node_id, node))
                case ToolNode():
                    self.graph.add_node(name, self._calling(node_id, node))
                case MapNode():
                    self.graph.add_node(name, self._spreading(node_id, node))
                    self.graph.add_node(f"{name}_item", self._item(node_id, node))
                    self.graph.add_node(f"{name}_all", self._gathering(node_id, node))
                case AgentNode():
                    self.graph.add_node(name, self._delegating(node_id, node))
                case EndNode():
                    self.graph.add_node(name, self._ending(node_id, node))
        self.graph.add_edge(START, self._names[spec.entry])

    def _thinking(self, node_id: str, node: LlmNode) -> Callable[..., Any]:
        name, limits = self._names[node_id], self._spec.limits

        async def think(state: State, runtime: Runtime[Session]) -> Command[Any]:
            session, step = runtime.context, self._step(state)
            talk: list[Message] = state["talks"].get(node_id) or []
            opening: list[Message] = []
            tainted, recalled = state["tainted"], Recalled()
            if not talk:
                session.journal.tell("node_start", {"node_id": node_id, "step": step}, f"start {step}")
                opening = _opening(node_id, node, state)
            # The talk of a node that was begun by an earlier version holds what that recalled.
            known = state.get("recalled", {}).get(node_id)
            if node.remembers and (not talk or known is not None):
                recalled = await session.memory.recall(node_id, node, known if talk else None)
                if recalled.tainted:
                    session.journal.taint()
                    tainted = True
            await session.journal.flush()
            answer = await _asked(session, node, _reminded([*opening, *talk], recalled.messages), step)
            message = answer.message
            wanted = message.get("tool_calls") or []
            if not wanted:
                try:
                    value = _value(node, message)
                except RunFailed as failed:
                    if not _is_repairable(talk, message):
                        raise
                    repair = {"role": "user", "content": f"{_REPAIR} {failed.message}"}
                    again: dict[str, Any] = {"talks": {node_id: [*opening, message, repair]}}
                    again |= {"steps": 1, "tainted": tainted}
                    if opening and node.remembers:
                        again["recalled"] = {node_id: recalled.position}
                    return Command(update=again, goto=name)
                session.journal.tell("node_end", {"node_id": node_id, "step": step}, f"end {step}")
                written = {node.output_key: value}
                update = {"state": written, "talks": {node_id: None}, "steps": 1, "tainted": tainted}
                if node.remembers:
                    # A turn as a whole, without the system prompt: that is sent anew each time.
                    update["said"] = {node_id: [_turn(_unrepaired([*opening, *talk, message]))]}
                return Command(update=update, goto=self._next(node_id, state, written))
            if state["calls"] + len(wanted) > limits.max_tool_calls:
                raise RunFailed("max_tool_calls", f"The run made its {limits.max_tool_calls} tool calls.")
            sends = [
                Send(
                    f"{name}_tool",
                    {"call_id": f"{step}.{index}", "of": asked, "tainted": tainted},
                )
                for index, asked in enumerate(wanted)
            ]
            talked = {node_id: [*opening, message]}
            update = {"talks": talked, "steps": 1, "calls": len(wanted), "tainted": tainted}
            if opening and node.remembers:
                update["recalled"] = {node_id: recalled.position}
            return Command(update=update, goto=sends)

        return think

    def _acting(self, node_id: str, node: LlmNode) -> Callable[..., Any]:
        name = self._names[node_id]
        names = function_names(self._spec)
        refs = {names[ref.key]: ref for ref in node.tools}

        async def act(arg: dict[str, Any], runtime: Runtime[Session]) -> Command[Any]:
            asked = arg["of"]
            function = asked.get("function") or {}
            ref = refs.get(function.get("name", ""))
            tainted = False
            if ref is None:
                told: Any = {"error": {"code": "UNKNOWN_TOOL", "message": "There is no tool of this name here."}}
            else:
                try:
                    arguments = json.loads(function.get("arguments") or "{}")
                    wrong = _wrong(arguments) if isinstance(arguments, dict) else "are not a JSON object"
                except (ValueError, TypeError, RecursionError):
                    wrong = "are not a JSON object"
                if wrong:
                    told = {"error": {"code": "INVALID_ARGUMENTS", "message": f"The arguments {wrong}."}}
                else:
                    try:
                        made = await _called(
                            runtime.context, ref, arguments, arg["call_id"], arg["tainted"], node.approvers
                        )
                        told, tainted = _corrected(made.value, made.arguments), runtime.context.toolbox.taints(ref)
                    except ToolFailed as failed:
                        told, tainted = _corrected({"error": failed.told}, failed.arguments), _quotes(ref)
                    except Denied as denied:
                        if node.on_denied == "fail":
                            raise RunFailed("approval_denied", denied.reason) from denied
                        told = {"error": {"code": "APPROVAL_REJECTED", "message": denied.reason}}
            message = {"role": "tool", "tool_call_id": asked.get("id", ""), "content": _text(told)}
            return Command(update={"talks": {node_id: [message]}, "tainted": tainted}, goto=name)

        return act

    def _calling(self, node_id: str, node: ToolNode) -> Callable[..., Any]:
        async def call(state: State, runtime: Runtime[Session]) -> Command[Any]:
            session, step = runtime.context, self._step(state)
            session.journal.tell("node_start", {"node_id": node_id, "step": step}, f"start {step}")
            self._count_call(state, 1)
            arguments = _rendered(node_id, node.args_template, state)
            result = await self._use(session, node, arguments, f"{step}", state["tainted"])
            session.journal.tell("node_end", {"node_id": node_id, "step": step}, f"end {step}")
            written = {node.output_key: result} if node.output_key else {}
            tainted = session.toolbox.taints(node.tool_ref)
            update = {"state": written, "steps": 1, "calls": 1, "tainted": tainted}
            return Command(update=update, goto=self._next(node_id, state, written))

        return call

    def _delegating(self, node_id: str, node: AgentNode) -> Callable[..., Any]:
        async def delegate(state: State, runtime: Runtime[Session]) -> Command[Any]:
            session, step = runtime.context, self._step(state)
            session.journal.tell("node_start", {"node_id": node_id, "step": step}, f"start {step}")
            self._count_call(state, 1)
            given = _rendered(node_id, node.input_template, state)
            try:
                outcome = await _delegated(session, node, given, f"{step}", tainted=state["tainted"])
            except RunFailed as failed:
                if node.on_error == "fail":
                    raise
                # The run below may have read text from outside, and its message may quote it.
                session.journal.taint()
                outcome = Outcome({"error": {"code": failed.type, "message": failed.message}}, tainted=True)
            session.journal.tell("node_end", {"node_id": node_id, "step": step}, f"end {step}")
            written = {node.output_key: outcome.output}
            update = {"state": written, "steps": 1, "calls": 1, "tainted": outcome.tainted}
            return Command(update=update, goto=self._next(node_id, state, written))

        return delegate

    def _spreading(self, node_id: str, node: MapNode) -> Callable[..., Any]:
        name = self._names[node_id]

        async def spread(state: State, runtime: Runtime[Session]) -> Command[Any]:
            step = self._step(state)
            runtime.context.journal.tell("node_start", {"node_id": node_id, "step": step}, f"start {step}")
            items = _rendered(node_id, node.over, state)
            if not isinstance(items, list):
                raise RunFailed("invalid_template", f"{node_id}: `over` names no list")
            if len(items) > _MOST_ITEMS:
                raise RunFailed("too_many_items", f"{node_id}: a map goes over at most {_MOST_ITEMS} items")
            self._count_call(state, len(items))
            tasks = [
                Send(
                    f"{name}_item",
                    {
                        "call_id": f"{step}.{index}",
                        "index": index,
                        "arguments": arguments,
                        "tainted": state["tainted"],
                    },
                )
                for index, arguments in enumerate(_rendered_each(node_id, node.args_template, state, items))
            ]
            about = {name: {"step": step, "count": len(items)}}
            goto: Any = tasks or f"{name}_all"
            return Command(update={"steps": 1, "calls": len(items), "items": about}, goto=goto)

        return spread

    def _item(self, node_id: str, node: MapNode) -> Callable[..., Any]:
        name = self._names[node_id]

        async def do(arg: dict[str, Any], runtime: Runtime[Session]) -> Command[Any]:
            session = runtime.context
            result = await self._use(session, node, arg["arguments"], arg["call_id"], arg["tainted"])
            tainted = session.toolbox.taints(node.tool_ref)
            done = {f"{name} {arg['index']}": result}
            return Command(update={"items": done, "tainted": tainted}, goto=f"{name}_all")

        return do

    def _gathering(self, node_id: str, node: MapNode) -> Callable[..., Any]:
        name = self._names[node_id]

        async def gather(state: State, runtime: Runtime[Session]) -> Command[Any]:
            about = state["items"][name]
            results = [state["items"][f"{name} {index}"] for index in range(about["count"])]
            step = about["step"]
            runtime.context.journal.tell("node_end", {"node_id": node_id, "step": step}, f"end {step}")
            written = {node.output_key: results}
            return Command(update={"state": written}, goto=self._next(node_id, state, written))

        return gather

    def _ending(self, node_id: str, node: EndNode) -> Callable[..., Any]:
        async def end(state: State, runtime: Runtime[Session]) -> dict[str, Any]:
            step = self._step(state)
            runtime.context.journal.tell("node_start", {"node_id": node_id, "step": step}, f"start {step}")
            output = _rendered(node_id, node.output_template, state)
            runtime.context.journal.tell("node_end", {"node_id": node_id, "step": step}, f"end {step}")
            return {"output": output, "steps": 1}

        return end

    async def _use(
        self,
        session: Session,
        node: ToolNode | MapNode,
        arguments: dict[str, Any],
        call_id: str,
        tainted: bool,
    ) -> Any:
        """Make a call of the graph itself. What its tool refuses ends the run, or stands in place of the result."""
        ref = node.tool_ref
        try:
            return (await _called(session, ref, arguments, call_id, tainted, node.approvers)).value
        except ToolFailed as failed:
            if node.on_error == "tell":
                return {"error": failed.told}
            raise RunFailed("tool_failed", f"{ref.name}: {failed.told.get('message', 'failed')}") from failed
        except Denied as denied:
            if node.on_denied == "fail":
                raise RunFailed("approval_denied", denied.reason) from denied
            return {"error": {"code": "APPROVAL_REJECTED", "message": denied.reason}}

    def _step(self, state: State) -> int:
        step = state["steps"] + 1
        if step > self._spec.limits.max_steps:
            raise RunFailed("max_steps", f"The run took its {self._spec.limits.max_steps} steps.")
        return step

    def _count_call(self, state: State, more: int) -> None:
        most = self._spec.limits.max_tool_calls
        if state["calls"] + more > most:
            raise RunFailed("max_tool_calls", f"The run made its {most} tool calls.")

    def _next(self, node_id: str, state: State, written: Mapping[str, Any]) -> str:
        sight = Sight({"state": {**state["state"], **written}, "input": state["input"]})
        for condition, name in self._leads.get(node_id, ()):
            try:
                if condition is None or condition.holds(sight):
                    return name
            except ConditionError as exc:
                raise RunFailed("invalid_condition", f"{node_id}: {exc}") from exc
        raise RunFailed("no_edge", f"No edge leads on from {node_id}: none of its conditions holds.")


async def _asked(session: Session, node: LlmNode, messages: list[Message], step: int) -> Answer:
    """What a model answers. It is asked anew when the run goes on after a rest."""
    try:
        return await session.toolbox.ask(node, messages, step)
    except Limited as limited:
        interrupt({"again_in": limited.seconds})
        raise


async def _called(
    session: Session,
    ref: ToolRef,
    arguments: Mapping[str, Any],
    call_id: str,
    tainted: bool,
    approvers: NamedApprovers | None,
) -> CallResult:
    """The result of a call, told of before and after."""
    about: dict[str, Any] = {"tool_source": ref.source, "tool_name": ref.name, "call_id": call_id}
    if (server := session.toolbox.server(ref, call_id)) is not None:
        about["server"] = server
    shown = session.toolbox.shown(ref, arguments)
    session.journal.tell("tool_call_start", {**about, "args": shown}, f"call {call_id}")
    ended, begin = f"called {call_id}", time.monotonic()
    try:
        result = await session.toolbox.call(ref, arguments, call_id, tainted=tainted, approvers=approvers)
    except Waiting as waiting:
        interrupt({"approval_id": waiting.approval_id, **about, **waiting.shown})
        raise
    except Limited as limited:
        interrupt({"again_in": limited.seconds})
        raise
    except ToolFailed as failed:
        quoting = {"tainted": True} if _quotes(ref) else {}
        if quoting:
            session.journal.taint()
        about["duration_ms"] = _milliseconds_since(begin)
        failing = {**about, "status": "error", "error": failed.told, **quoting, **_used(failed.arguments)}
        session.journal.tell("tool_call_end", failing, ended)
        raise
    except Denied as denied:
        about["duration_ms"] = _milliseconds_since(begin)
        session.journal.tell("tool_call_end", {**about, "status": "denied", "error": {"message": denied.reason}}, ended)
        raise
    about["duration_ms"] = _milliseconds_since(begin)
    used = _used(result.arguments)
    text = _text(result.value)
    if len(text) > _MOST_RESULT:
        too_large = ToolFailed(
            {"code": "RESULT_TOO_LARGE", "message": f"The result has more than {_MOST_RESULT} characters."},
            result.arguments,
        )
        session.journal.tell("tool_call_end", {**about, "status": "error", "error": too_large.told, **used}, ended)
        raise too_large
    told = {**_kept(result.value), **used}
    if session.toolbox.taints(ref):
        told["tainted"] = True
        session.journal.taint()
    session.journal.tell("tool_call_end", {**about, "status": "ok", **told}, ended)
    return result


def _milliseconds_since(begin: float) -> int:
    return round((time.monotonic() - begin) * 1000)


def _used(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an event says of arguments that a person gave in place of what the run wanted."""
    return {} if arguments is None else {"args": dict(arguments)}


def _corrected(result: Any, arguments: Mapping[str, Any] | None) -> Any:
    """What a model is told of a call, so that it does not report what it asked for as done."""
    if arguments is None:
        return result
    note = "A person approved this call with other arguments than you gave. These were used; report these."
    return {"note": note, "arguments_used": dict(arguments), "result": result}


def _quotes(ref: ToolRef) -> bool:
    """Whether the refusals of a tool may be in the words of strangers: those of our own tools are in ours."""
    return ref.source != "builtin"


async def _delegated(
    session: Session, node: AgentNode, given: Mapping[str, Any], call_id: str, *, tainted: bool
) -> Outcome:
    """What a run of another agent returned, told of as a call is."""
    about: dict[str, Any] = {"tool_source": "agent", "tool_name": node.agent, "call_id": call_id}
    about["run_id"] = session.toolbox.child_id(call_id)
    session.journal.tell("tool_call_start", {**about, "args": given}, f"call {call_id}")
    ended, begin = f"called {call_id}", time.monotonic()
    try:
        outcome = await session.toolbox.delegate(node, given, call_id, tainted=tainted)
    except Delegated as delegated:
        interrupt({"run_id": delegated.run_id})
        raise
    except RunFailed as failed:
        error = {"code": failed.type, "message": failed.message}
        about["duration_ms"] = _milliseconds_since(begin)
        session.journal.tell("tool_call_end", {**about, "status": "error", "error": error}, ended)
        raise
    about["duration_ms"] = _milliseconds_since(begin)
    told = _kept(outcome.output)
    if outcome.tainted:
        told["tainted"] = True
        session.journal.taint()
    session.journal.tell("tool_call_end", {**about, "status": "ok", **told}, ended)
    return outcome


def _kept(result: Any) -> dict[str, Any]:
    """What an event tells of a result."""
    text = _text(result)
    return {"result": result} if len(text) <= _GREATEST_KEPT else {"result_characters": len(text)}


def _opening(node_id: str, node: LlmNode, state: State) -> list[Message]:
    system: list[Message] = [{"role": "system", "content": _told(node_id, node.system_prompt, state)}]
    given = json.dumps(state["input"], ensure_ascii=False) if node.input_template is None else None
    user = given if given is not None else _told(node_id, node.input_template or "", state)
    return [*(system if node.system_prompt else []), {"role": "user", "content": user}]


def _reminded(talk: list[Message], earlier: Sequence[Message]) -> list[Message]:
    """A talk with the earlier messages of its conversation, which follow its system prompt."""
    prompts = 1 if talk[0]["role"] == "system" else 0
    return [*talk[:prompts], *earlier, *talk[prompts:]]


def _turn(talk: list[Message]) -> list[Message]:
    """What the user said last and all that followed."""
    begin = max(index for index, message in enumerate(talk) if message["role"] == "user")
    return talk[begin:]


def _is_repairable(talk: list[Message], message: Message) -> bool:
    """Whether a model may be asked once more for an answer: it has not been in this talk, and the talk can hold it."""
    text = message.get("content") or ""
    return len(text) <= _GREATEST_KEPT and _wrong(text) is None and not any(map(_is_repair, talk))


def _is_repair(message: Message) -> bool:
    return message["role"] == "user" and str(message.get("content")).startswith(_REPAIR)


def _unrepaired(talk: list[Message]) -> list[Message]:
    """A talk without an answer that missed its schema, and without the request for another."""
    kept: list[Message] = []
    for message in talk:
        if _is_repair(message) and kept and kept[-1]["role"] == "assistant":
            kept.pop()
        else:
            kept.append(message)
    return kept


def _unfenced(text: str) -> str:
    """What stands in the code fence that some models put around their JSON."""
    text = text.strip()
    fenced = text.startswith("```") and text.endswith("```") and "\n" in text
    return text[text.index("\n") + 1 : -3] if fenced else text


def _value(node: LlmNode, message: Message) -> Any:
    text = message.get("content") or ""
    if node.output_schema is None:
        return text
    text = _unfenced(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise RunFailed("invalid_output", "The model's answer is not the JSON that was asked for.") from exc
    if wrong := _wrong(value):
        raise RunFailed("invalid_output", f"The model's answer {wrong}.")
    if other := departure(node.output_schema, value):
        raise RunFailed("invalid_output", f"The model's answer is not of its `output_schema`: {other}.")
    return value


def _wrong(value: Any) -> str | None:
    """Why a run cannot hold what a model wrote: Python reads more than JSON is, and than databases keep."""
    return next((issue.message for issue in unfit(value)), None)


def _values(state: State) -> dict[str, Any]:
    return {"state": state["state"], "input": state["input"]}


def _told(node_id: str, text: str, state: State) -> str:
    try:
        return Template(text).render(_values(state))
    except TemplateError as exc:
        raise RunFailed("invalid_template", f"{node_id}: {exc}") from exc


def _rendered(node_id: str, tree: Any, state: State) -> Any:
    try:
        return rendered(tree, _values(state))
    except TemplateError as exc:
        raise RunFailed("invalid_template", f"{node_id}: {exc}") from exc


def _rendered_each(node_id: str, tree: Any, state: State, items: list[Any]) -> list[Any]:
    try:
        return rendered_each(tree, _values(state), items)
    except TemplateError as exc:
        raise RunFailed("invalid_template", f"{node_id}: {exc}") from exc


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
