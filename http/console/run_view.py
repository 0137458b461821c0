"""Turns the events of a run into what people read: its steps with their calls, and its position in its graph."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from baobab.tools.core.guard.escaping import escape_json

ENDED = frozenset(["completed", "failed", "cancelled", "timed_out"])
STATUSES = ("queued", "running", "paused", "cancelling", "completed", "failed", "cancelled", "timed_out")
_SHOWN = 2000
"""The characters of a value that the timeline shows; a page of its own has all of them."""

REMEDIES = {
    "approval_denied": "A person rejected the call, for the reason in the timeline. Change what the agent asks for, or "
    "set on_denied to tell, so that the graph goes on without it.",
    "timed_out": "Decide sooner, or raise the graph's limits timeout_seconds or human_timeout_seconds. A fork goes on "
    "from the last step.",
    "max_steps": "Look in the timeline for a loop that does not end, or raise the graph's limit max_steps.",
    "max_tool_calls": "Look in the timeline for calls that repeat, or raise the graph's limit max_tool_calls.",
    "too_many_items": "Give the node fewer items at a time.",
    "too_deep": "Have fewer agents run each other.",
    "state_too_large": "Have the nodes write less to the state, for example by asking tools for smaller pages.",
    "output_too_large": "Return less: name single values in the end node's output_template.",
    "tool_failed": "Look at the failed call in the timeline. With on_error set to tell, the graph can handle it.",
    "model_failed": "Look at what the provider said, and at the app's models and provider keys; then fork from the "
    "last step.",
    "invalid_template": "Correct the template in the agent's graph: it does not fit the input or the state.",
    "invalid_condition": "Correct the condition in the agent's graph: it does not fit the input or the state.",
    "invalid_output": "The model did not answer in the shape of output_schema: relax it, or use a stronger model.",
    "no_edge": "Give the node one edge without a condition, which is taken where no other is.",
    "not_allowed": "Whoever started it has lost the right. Start it again as somebody who has it.",
    "agent_not_found": "Make the agent that it wanted to run, or name another in the graph.",
    "agent_disabled": "Enable the agent that it wanted to run.",
    "daily_budget_usd": "Raise the agent's daily budget, or try again tomorrow (UTC).",
    "worker_lost": "This is the server's fault. A fork goes on from the failed step.",
    "internal_error": "This is the server's fault. A fork goes on from the failed step; its log has the cause.",
}


def build_timeline(
    events: Iterable[Mapping[str, Any]],
    graph: Mapping[str, Any],
    model_calls: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Returns the entries of a timeline, oldest first: the steps with their calls, and the events between them.

    model_calls: the requests to models and their answers, by step, if the page shows them.
    """
    entries: list[dict[str, Any]] = []
    steps: dict[int, dict[str, Any]] = {}
    calls: dict[str, dict[str, Any]] = {}
    for event in events:
        payload, at, seq = event["payload"], event["created_at"], event["seq"]
        match event["type"]:
            case "node_start":
                node_id = payload["node_id"]
                kind = graph["nodes"].get(node_id, {}).get("type", "")
                entry = {"kind": "step", "step": payload["step"], "node_id": node_id, "type": kind, "at": at}
                steps[payload["step"]] = entry | {"seq": seq, "did": [], "took": None}
                entries.append(steps[payload["step"]])
            case "node_end":
                if step := steps.get(payload["step"]):
                    step["took"] = _milliseconds(step["at"], at)
            case "tool_call_start":
                calls[payload["call_id"]] = call = _begin_call(payload, at, seq)
                _add(entries, steps, int(str(payload["call_id"]).partition(".")[0] or 0), call)
            case "tool_call_end":
                call = calls.get(payload["call_id"]) or _begin_call(payload, at, seq)
                if payload["call_id"] not in calls:
                    _add(entries, steps, int(str(payload["call_id"]).partition(".")[0] or 0), call)
                _end_call(call, payload, seq)
            case "llm_token_usage":
                model = {
                    "kind": "model",
                    "at": at,
                    "seq": seq,
                    **payload,
                    "asked": (model_calls or {}).get(payload["step"]),
                }
                _add(entries, steps, payload["step"], model)
            case _:
                if (call_id := payload.get("call_id")) in calls:
                    calls[call_id]["status"] = "waits" if event["type"] == "run_paused" else "under way"
                entries.append(_describe_event(event))
    return entries


def _add(entries: list[dict[str, Any]], steps: Mapping[int, Any], number: int, entry: dict[str, Any]) -> None:
    """Adds a call to its step. If the step is not in the timeline, the call becomes an entry of its own."""
    if number in steps:
        steps[number]["did"].append(entry)
    else:
        entries.append({"kind": "step", "step": number, "node_id": None, "type": "", "at": entry["at"], "took": None}
                       | {"seq": entry["seq"], "did": [entry]})  # fmt: skip


def _begin_call(payload: Mapping[str, Any], at: datetime, seq: int) -> dict[str, Any]:
    call = {"kind": "call", "tool": payload["tool_name"], "source": payload["tool_source"], "at": at, "seq": seq}
    call |= {"server": payload.get("server"), "run_id": payload.get("run_id"), "status": "under way", "took": None}
    return call | {"args": show_value(payload["args"]) if "args" in payload else None, "result": None, "error": None}


def _end_call(call: dict[str, Any], payload: Mapping[str, Any], seq: int) -> None:
    call |= {"status": payload["status"], "took": payload.get("duration_ms"), "tainted": payload.get("tainted")}
    call["end_seq"] = seq
    if "args" in payload:
        call["edited"] = show_value(payload["args"])
    if "result" in payload:
        call["result"] = show_value(payload["result"])
    elif "result_characters" in payload:
        call["result"] = {"text": f"({payload['result_characters']} characters, not kept)", "more": 0}
    if error := payload.get("error"):
        call["error"] = f"{error.get('code', '')} {error.get('message', '')}".strip()


def _describe_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entry of an event between steps: the start, a pause, a decision or the end."""
    payload = event["payload"]
    entry = {"kind": event["type"], "at": event["created_at"], "seq": event["seq"], **payload}
    for name in ("input", "output", "args"):
        if name in payload:
            entry[f"{name}_shown"] = show_value(payload[name])
    return entry


def show_value(value: Any) -> dict[str, Any]:
    """Returns a value as text of at most 2000 characters, and the number of characters that were left out."""
    text = value if isinstance(value, str) else escape_json(value, indent=2)
    return {"text": text[:_SHOWN], "more": max(0, len(text) - _SHOWN)}


def find_states(run: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the states of the graph's nodes by their ids: `done`, `active`, `waiting` or `failed`."""
    states: dict[str, str] = {}
    last: str | None = None
    for event in events:
        if event["type"] == "node_start":
            last = str(event["payload"]["node_id"])
        if event["type"] in ("node_start", "node_end"):
            states[str(event["payload"]["node_id"])] = "done"
    if last is not None:
        marks = {"failed": "failed", "timed_out": "failed", "paused": "waiting", "completed": "done"}
        states[last] = marks.get(run["status"], "done" if run["status"] in ENDED else "active")
    return states


def say_steps(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the lines of a run that a comparison shows: without times, ids and durations, which always differ."""
    lines: list[str] = []
    for entry in entries:
        if entry["kind"] == "step":
            lines.append(f"step {entry['step']}: {entry['node_id'] or ''}")
            for did in entry["did"]:
                if did["kind"] == "model":
                    lines.append(f"  model {did.get('model')}: {did['output_tokens']} tokens")
                    continue
                lines.append(f"  call {did['tool']}: {did['status']}")
                for name in ("args", "edited", "result"):
                    if did.get(name):
                        lines += _indent(f"{name}: {did[name]['text']}", "    ")
                lines += _indent(f"error: {did['error']}", "    ") if did["error"] else []
        else:
            lines.append(entry["kind"].replace("_", " "))
            texts = [entry[name]["text"] for name in ("input_shown", "output_shown") if name in entry]
            texts += [entry["error"]] if entry["kind"] == "run_failed" else []
            lines += [line for text in texts for line in _indent(text, "  ")]
    return lines


def _indent(text: str, by: str) -> list[str]:
    return [by + line for line in text.split("\n")]


def _milliseconds(begin: datetime, end: datetime) -> float:
    return max(0.0, (end - begin).total_seconds() * 1000)
