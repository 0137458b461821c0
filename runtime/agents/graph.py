"""An agent's graph, compiled to LangGraph.

Each node of the graph becomes one node of LangGraph. An LLM node gets a second one, which runs each call of a tool as
a task of its own: calls that wait for a person can be decided one by one, and calls that have ended are not repeated.
A node starts from its beginning after a pause or a crash, so it does nothing that takes effect before it may wait.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, Send, interrupt

from baobab.runtime.agents.conversation import (
    REPAIR,
    describe_cut,
    find_cut,
    find_violation,
    insert_earlier,
    is_repairable,
    last_turn,
    open_conversation,
    parse_answer,
    remove_repair,
)
from baobab.runtime.agents.edges import Edges
from baobab.runtime.agents.failures import CallDenied, RateLimited, RunFailed, ToolFailed
from baobab.runtime.agents.model_answers import ModelAnswer
from baobab.runtime.agents.offers import function_names
from baobab.runtime.agents.rendering import render_each, render_tree, template_values
from baobab.runtime.agents.run_session import Message, RecalledMessages, RunResult, RunSession
from baobab.runtime.agents.spec.announcements import CallingNode, announce_write
from baobab.runtime.agents.spec.asks import keep_ask
from baobab.runtime.agents.spec.spec import (
    AgentNode,
    EndNode,
    GraphSpec,
    LlmNode,
    MapNode,
    ToolNode,
    ToolRef,
    parse_graph,
)
from baobab.runtime.agents.state import State
from baobab.runtime.agents.tool_calls import as_text, delegate_run, is_quoting, make_call, refuse_call

_MOST_ITEMS = 1000
_LONGEST_OF_ITEM = 1000
"""The most characters of a value that is kept to be shown beside the call of one item."""


Graph = CompiledStateGraph[Any, Any, Any, Any]


@lru_cache(maxsize=256)
def _compile_cached(text: str) -> Graph:
    return _GraphCompiler(parse_graph(text)).graph.compile()


def compile_graph(text: str, checkpointer: Any) -> Graph:
    """Compiles a valid graph. Its input is what `build_initial_state` returns; its context is a RunSession.

    text: the graph as JSON, with its keys sorted.
    """
    # Compiling costs as much as a dozen steps, and what the copies share is only read.
    graph = copy(_compile_cached(text))
    graph.checkpointer = checkpointer
    return graph


class _GraphCompiler:
    def __init__(self, spec: GraphSpec) -> None:
        self._spec = spec
        self._edges = Edges(spec)
        self._names = self._edges.names
        self.graph: StateGraph[Any, Any, Any, Any] = StateGraph(State, context_schema=RunSession)
        for node_id, node in spec.nodes.items():
            name = self._names[node_id]
            match node:
                case LlmNode():
                    self.graph.add_node(name, self._build_llm(node_id, node))
                    self.graph.add_node(f"{name}_tool", self._build_llm_call(node_id, node))
                case ToolNode():
                    self.graph.add_node(name, self._build_tool(node_id, node))
                case MapNode():
                    self.graph.add_node(name, self._build_map(node_id, node))
                    self.graph.add_node(f"{name}_item", self._build_map_item(node_id, node))
                    self.graph.add_node(f"{name}_all", self._build_map_result(node_id, node))
                case AgentNode():
                    self.graph.add_node(name, self._build_agent(node_id, node))
                case EndNode():
                    self.graph.add_node(name, self._build_end(node_id, node))
        self.graph.add_edge(START, self._names[spec.entry])

    def _build_llm(self, node_id: str, node: LlmNode) -> Callable[..., Any]:
        name, limits = self._names[node_id], self._spec.limits

        async def think(state: State, runtime: Runtime[RunSession]) -> Command[Any]:
            session, step = runtime.context, self._next_step(state)
            talk: list[Message] = state["talks"].get(node_id) or []
            opening: list[Message] = []
            tainted, recalled_messages = state["tainted"], RecalledMessages()
            if not talk:
                session.event_log.emit_event("node_start", {"node_id": node_id, "step": step}, f"start {step}")
                opening = open_conversation(node_id, node, state)
            # A conversation that an earlier version began already holds the messages that it recalled.
            recalled_until = state.get("recalled", {}).get(node_id)
            if node.remembers and (not talk or recalled_until is not None):
                recalled_messages = await session.memory.recall_messages(
                    node_id, node, recalled_until if talk else None
                )
                if recalled_messages.tainted:
                    session.event_log.taint()
                    tainted = True
            await session.event_log.flush()
            answer = await _ask_model(
                session, node_id, node, insert_earlier([*opening, *talk], recalled_messages.messages), step
            )
            message = answer.message
            tool_calls = message.get("tool_calls") or []
            if not tool_calls:
                cut = find_cut(answer)
                try:
                    value = parse_answer(node, message)
                except RunFailed as failed:
                    problem = failed.message + describe_cut(cut)
                    if not is_repairable(talk, message):
                        raise RunFailed(failed.type, problem) from failed
                    repair = {"role": "user", "content": f"{REPAIR} {problem}"}
                    repair_update: dict[str, Any] = {"talks": {node_id: [*opening, message, repair]}}
                    repair_update |= {"steps": 1, "tainted": tainted}
                    if opening and node.remembers:
                        repair_update["recalled"] = {node_id: recalled_messages.position}
                    return Command(update=repair_update, goto=name)
                session.event_log.emit_event("node_end", {"node_id": node_id, "step": step}, f"end {step}")
                new_values = {node.output_key: value}
                update = {"state": new_values, "talks": {node_id: None}, "steps": 1, "tainted": tainted}
                if cut is not None:
                    update["incomplete"] = {"reason": cut, "node_id": node_id, "step": step}
                if node.remembers:
                    # A whole turn, without the system prompt, which every run sends itself.
                    update["said"] = {node_id: [last_turn(remove_repair([*opening, *talk, message]))]}
                return Command(update=update, goto=self._next_node(node_id, state, new_values))
            if state["calls"] + len(tool_calls) > limits.max_tool_calls:
                raise RunFailed("max_tool_calls", f"The run reached its limit of {limits.max_tool_calls} tool calls.")
            sends = [
                Send(
                    f"{name}_tool",
                    {
                        "call_id": f"{step}.{index}",
                        "of": tool_call,
                        "tainted": tainted,
                        # Why it breaks off, if it does.
                        "cut": None if all(answer.complete_calls[index : index + 1]) else answer.finish_reason,
                    },
                )
                for index, tool_call in enumerate(tool_calls)
            ]
            messages_by_node = {node_id: [*opening, message]}
            update = {"talks": messages_by_node, "steps": 1, "calls": len(tool_calls), "tainted": tainted}
            if opening and node.remembers:
                update["recalled"] = {node_id: recalled_messages.position}
            return Command(update=update, goto=sends)

        return think

    def _build_llm_call(self, node_id: str, node: LlmNode) -> Callable[..., Any]:
        name = self._names[node_id]
        names = function_names(self._spec)
        refs = {names[ref.key]: ref for ref in node.tools}

        async def act(arg: dict[str, Any], runtime: Runtime[RunSession]) -> Command[Any]:
            tool_call = arg["of"]
            function = tool_call.get("function") or {}
            ref = refs.get(function.get("name", ""))
            tainted = False
            warnings: Sequence[str] = ()
            if ref is None:
                text = "There is no tool with this name here."
                result: Any = {"error": refuse_call(runtime.context, tool_call, arg["call_id"], "UNKNOWN_TOOL", text)}
            else:
                try:
                    arguments = json.loads(function.get("arguments") or "{}")
                    wrong = find_violation(arguments) if isinstance(arguments, dict) else "are not a JSON object"
                except (ValueError, TypeError, RecursionError):
                    wrong = "are not a JSON object"
                if wrong:
                    text = f"The arguments {wrong}."
                    if (reason := arg.get("cut")) is not None:
                        text += (
                            f" The answer ended within the call (finish_reason: {reason or 'none'}): make it shorter."
                        )
                    result = {
                        "error": refuse_call(
                            runtime.context, tool_call, arg["call_id"], "INVALID_ARGUMENTS", text, ref.source
                        )
                    }
                else:
                    try:
                        async with runtime.context.call_slots:
                            call_result = await make_call(
                                runtime.context, ref, arguments, arg["call_id"], arg["tainted"], node.approvers
                            )
                        warnings = call_result.warnings
                        result, tainted = (
                            _note_edit(ref, call_result.value, call_result.arguments),
                            call_result.tainted,
                        )
                    except ToolFailed as failed:
                        result, tainted = _note_edit(ref, {"error": failed.error}, failed.arguments), is_quoting(ref)
                    except CallDenied as denied:
                        if node.on_denied == "fail":
                            raise RunFailed("approval_denied", denied.reason) from denied
                        result = {"error": {"code": "APPROVAL_REJECTED", "message": denied.reason}}
            content = as_text(result) + (f"\n\nWarnings: {' '.join(warnings)}" if warnings else "")
            message = {"role": "tool", "tool_call_id": tool_call.get("id", ""), "content": content}
            return Command(update={"talks": {node_id: [message]}, "tainted": tainted}, goto=name)

        return act

    def _build_tool(self, node_id: str, node: ToolNode) -> Callable[..., Any]:
        async def call(state: State, runtime: Runtime[RunSession]) -> Command[Any]:
            session, step = runtime.context, self._next_step(state)
            session.event_log.emit_event("node_start", {"node_id": node_id, "step": step}, f"start {step}")
            self._count_call(state, 1)
            arguments = render_tree(node_id, node.args_template, state)
            values = template_values(state)
            announcement = announce_write(self._spec, node_id, f"{step + 1}", values)
            calling = CallingNode(node_id, node, announcement, keep_ask(node.ask, values))
            result, tainted = await self._call_tool(session, calling, arguments, f"{step}", state["tainted"])
            session.event_log.emit_event("node_end", {"node_id": node_id, "step": step}, f"end {step}")
            new_values = {node.output_key: result} if node.output_key else {}
            update = {"state": new_values, "steps": 1, "calls": 1, "tainted": tainted}
            return Command(update=update, goto=self._next_node(node_id, state, new_values))

        return call

    def _build_agent(self, node_id: str, node: AgentNode) -> Callable[..., Any]:
        async def delegate(state: State, runtime: Runtime[RunSession]) -> Command[Any]:
            session, step = runtime.context, self._next_step(state)
            session.event_log.emit_event("node_start", {"node_id": node_id, "step": step}, f"start {step}")
            self._count_call(state, 1)
            run_input = render_tree(node_id, node.input_template, state)
            try:
                result = await delegate_run(session, node, run_input, f"{step}", tainted=state["tainted"])
            except RunFailed as failed:
                if node.on_error == "fail":
                    raise
                # The child run may have read text from outside, and its error message may quote it.
                session.event_log.taint()
                result = RunResult({"error": {"code": failed.type, "message": failed.message}}, tainted=True)
            session.event_log.emit_event("node_end", {"node_id": node_id, "step": step}, f"end {step}")
            new_values = {node.output_key: result.output}
            update = {"state": new_values, "steps": 1, "calls": 1, "tainted": result.tainted}
            if result.incomplete is not None:
                update["incomplete"] = {**result.incomplete, "node_id": node_id, "step": step}
            return Command(update=update, goto=self._next_node(node_id, state, new_values))

        return delegate

    def _build_map(self, node_id: str, node: MapNode) -> Callable[..., Any]:
        name = self._names[node_id]

        async def spread(state: State, runtime: Runtime[RunSession]) -> Command[Any]:
            step = self._next_step(state)
            runtime.context.event_log.emit_event("node_start", {"node_id": node_id, "step": step}, f"start {step}")
            items = render_tree(node_id, node.over, state)
            if not isinstance(items, list):
                raise RunFailed("invalid_template", f"{node_id}: `over` does not name a list")
            if len(items) > _MOST_ITEMS:
                raise RunFailed("too_many_items", f"{node_id}: a map can have at most {_MOST_ITEMS} items")
            self._count_call(state, len(items))
            tasks = [
                Send(
                    f"{name}_item",
                    {
                        "call_id": f"{step}.{index}",
                        "index": index,
                        "arguments": arguments,
                        "tainted": state["tainted"],
                        "ask": keep_ask(node.ask, {**template_values(state), "item": item}, _LONGEST_OF_ITEM),
                    },
                )
                for index, (item, arguments) in enumerate(
                    zip(items, render_each(node_id, node.args_template, state, items), strict=True)
                )
            ]
            about = {name: {"step": step, "count": len(items)}}
            goto: Any = tasks or f"{name}_all"
            return Command(update={"steps": 1, "calls": len(items), "items": about}, goto=goto)

        return spread

    def _build_map_item(self, node_id: str, node: MapNode) -> Callable[..., Any]:
        name = self._names[node_id]

        async def do(arg: dict[str, Any], runtime: Runtime[RunSession]) -> Command[Any]:
            session = runtime.context
            calling = CallingNode(node_id, node, ask=arg.get("ask"))
            result, tainted = await self._call_tool(session, calling, arg["arguments"], arg["call_id"], arg["tainted"])
            item_result = {f"{name} {arg['index']}": result}
            return Command(update={"items": item_result, "tainted": tainted}, goto=f"{name}_all")

        return do

    def _build_map_result(self, node_id: str, node: MapNode) -> Callable[..., Any]:
        name = self._names[node_id]

        async def gather(state: State, runtime: Runtime[RunSession]) -> Command[Any]:
            about = state["items"][name]
            results = [state["items"][f"{name} {index}"] for index in range(about["count"])]
            step = about["step"]
            runtime.context.event_log.emit_event("node_end", {"node_id": node_id, "step": step}, f"end {step}")
            new_values = {node.output_key: results}
            return Command(update={"state": new_values}, goto=self._next_node(node_id, state, new_values))

        return gather

    def _build_end(self, node_id: str, node: EndNode) -> Callable[..., Any]:
        async def end(state: State, runtime: Runtime[RunSession]) -> dict[str, Any]:
            step = self._next_step(state)
            runtime.context.event_log.emit_event("node_start", {"node_id": node_id, "step": step}, f"start {step}")
            output = render_tree(node_id, node.output_template, state)
            runtime.context.event_log.emit_event("node_end", {"node_id": node_id, "step": step}, f"end {step}")
            return {"output": output, "steps": 1}

        return end

    async def _call_tool(
        self,
        session: RunSession,
        calling: CallingNode,
        arguments: dict[str, Any],
        call_id: str,
        tainted: bool,
    ) -> tuple[Any, bool]:
        """Calls the tool of a node. Returns its result, and whether that may hold text from outside. An error of the
        tool fails the run, or is returned in place of the result.
        """
        node = calling.node
        ref = node.tool_ref
        try:
            async with session.call_slots:
                result = await make_call(session, ref, arguments, call_id, tainted, node.approvers, calling)
        except ToolFailed as failed:
            if node.on_error == "tell":
                return {"error": failed.error}, is_quoting(ref)
            server = failed.error.get("details", {}).get("tool_server")
            place = f"{ref.name} of the tool server {server}" if server else ref.name
            message = f"{place}: {failed.error.get('message', 'failed')}"
            # What a tool says to the app is not for whoever started the run.
            quotes = is_quoting(ref) or calling.lends_right
            raise RunFailed("tool_failed", message, quotes=quotes, cause=failed.error) from failed
        except CallDenied as denied:
            if node.on_denied == "fail":
                raise RunFailed("approval_denied", denied.reason) from denied
            return {"error": {"code": "APPROVAL_REJECTED", "message": denied.reason}}, False
        return result.value, result.tainted

    def _next_step(self, state: State) -> int:
        step = state["steps"] + 1
        if step > self._spec.limits.max_steps:
            raise RunFailed("max_steps", f"The run reached its limit of {self._spec.limits.max_steps} steps.")
        return step

    def _count_call(self, state: State, more: int) -> None:
        most = self._spec.limits.max_tool_calls
        if state["calls"] + more > most:
            raise RunFailed("max_tool_calls", f"The run reached its limit of {most} tool calls.")

    def _next_node(self, node_id: str, state: State, new_values: Mapping[str, Any]) -> str:
        return self._edges.follow(node_id, {"state": {**state["state"], **new_values}, "input": state["input"]})


async def _ask_model(
    session: RunSession, node_id: str, node: LlmNode, messages: list[Message], step: int
) -> ModelAnswer:
    """Asks a model. After a pause for a rate limit it is asked again."""
    try:
        return await session.toolbox.ask_model(node_id, node, messages, step)
    except RateLimited as limited:
        interrupt({"again_in": limited.seconds})
        raise


def _note_edit(ref: ToolRef, result: Any, arguments: Mapping[str, Any] | None) -> Any:
    """Returns the result as the model sees it, with the arguments that a person used in place of the model's own.

    The answer to a question is a result and no edit. A tool without a result says that it is done, as over MCP.
    """
    result = "Done." if result is None else result
    if arguments is None or (ref.source, ref.name) == ("builtin", "interrupt"):
        return result
    note = "A person approved this call with other arguments than you gave. These were used; report these."
    return {"note": note, "arguments_used": dict(arguments), "result": result}
