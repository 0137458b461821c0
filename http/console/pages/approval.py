"""/console/approvals/{id}: one call that waits for a decision, with its arguments and effects, and the form that
decides.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from baobab.http.console.answer_form import build_fields, read_answer
from baobab.http.console.compare import compare_texts
from baobab.http.console.deciding import decide
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.rendering import say_ago, say_approvers, say_duration
from baobab.http.console.run_view import build_timeline
from baobab.http.console.visit import Visit
from baobab.http.console.waiting import find_alike, load_waiting, read_filters
from baobab.tools.core.errors import BadRequest, Forbidden, NotFound
from baobab.tools.core.escaping import escape_json
from baobab.tools.core.types import parse_json

_QUESTION, _REMOTE, _BOUND = "interrupt", "mcp_servers_call", "app_id"
_VIA = {"mcp": "over MCP", "rest": "over REST", "console": "in the console"}
_LAST_EVENTS, _LAST_STEPS = 60, 4
_MOST_STEPS = 50
"""The most steps of a run whose graph sets no limit (docs/graph-spec.md)."""
_SHORT = 80
"""The most characters of a value that is shown in the table of values before and after."""


async def show_approval(visit: Visit) -> Context:
    details = await visit.call("approvals_get", approval_id=visit.parts["id"])
    approval = details["approval"]
    is_question = approval["tool"] == _QUESTION
    waits = approval["status"] == "pending"
    of_one = not (isinstance(approval["approvers"], dict) and "persons" in approval["approvers"])
    has_fields = approval["run_as"] is None or bool(approval["edit"])
    editable = waits and details["may_decide"] and approval["run_id"] is not None and of_one and has_fields
    fields = _build_fields(details) if is_question else None
    # A form says all that its schema says.
    main_arguments = pick_shown(approval, details["arguments"] or {})
    if fields:
        main_arguments.pop("answer_schema", None)
    changes, then = details["changes"] or [], details["then"]
    waiting = await load_waiting(visit, read_filters(visit.query))
    return {
        **details,
        "title": approval["title"],
        "effect": _find_effect(visit, approval, changes),
        "arguments_shown": list_arguments(main_arguments),
        "via": _VIA.get(approval["asker"]["door"]),
        "ago": say_ago((visit.now - approval["created_at"]).total_seconds()),
        "remote": details["arguments"] if approval["tool"] == _REMOTE else None,
        **show_changes(changes),
        "is_question": is_question,
        "waits": waits,
        "left": say_duration((approval["expires_at"] - visit.now).total_seconds()),
        "who": say_approvers(approval["approvers"]),
        "editable": editable and details["arguments"] is not None,
        "edited_text": json.dumps(_editable(approval, details["arguments"] or {}), indent=2),
        "has_alike": len(find_alike(waiting.calls, approval)) > 1,
        # A key's own call: its rules are the key's. A question is no call that could be allowed once and for all.
        "asks_of_key": waits and details["may_decide"] and _find_key(approval) is not None and not is_question,
        "was_decided": "decided" in visit.query,
        "fields": fields,
        "then_shown": list_arguments(pick_shown(approval, then["arguments"] or {})) if then else [],
        "so_far": await _read_run(visit, approval),
        "waiting": waiting,
        "waiting_count": waiting.total,
    }


def show_changes(changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what a call would change: short values side by side, and long ones line by line as a diff."""
    short: list[Mapping[str, Any]] = []
    long: list[dict[str, Any]] = []
    for change in map(_write_briefly, changes):
        before, after = change["before"], change["after"]
        if all(text is None or (len(text) <= _SHORT and "\n" not in text) for text in (before, after)):
            short.append(change)
        else:
            rows = compare_texts(before or "", after or "") if before and after else [("-", before)] if before else []
            rows = rows or [("+", line) for line in (after or "").split("\n")]
            long.append({"what": change["what"], "rows": rows, "is_new": before is None, "is_gone": after is None})
    return {"short_changes": short, "long_changes": long}


def _find_effect(visit: Visit, approval: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]) -> str:
    """Returns the effect of a call. A tool that may delete counts as destructive if this call would delete something
    now.
    """
    tool = visit.registry.tools.get(approval["tool"])
    may_destroy = tool is not None and tool.destructive_when is not None
    effect: str = approval["effect"]
    return "destructive" if may_destroy and any(change["after"] is None for change in changes) else effect


def pick_shown(approval: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that people need to decide. The page shows the app and the tool server elsewhere."""
    if approval["tool"] == _REMOTE:
        # The short ones first: to whom a mail goes stands before its text.
        return dict(sorted(arguments.get("arguments", {}).items(), key=lambda item: len(escape_json(item[1]))))
    return {name: value for name, value in arguments.items() if name != _BOUND or value != approval["app_id"]}


def _write_briefly(change: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the change with both values on one line if they are short and share no field, otherwise unchanged."""
    if change["before"] is None and change["after"] is None:
        return change
    try:
        values = {side: json.loads(change[side]) for side in ("before", "after") if change[side] is not None}
    except ValueError:
        # A long value is cut, and no JSON any more.
        return change
    before, after = values.get("before"), values.get("after")
    if isinstance(before, dict) and isinstance(after, dict):
        if any(after.get(name, ...) == value for name, value in before.items()):
            return change
    elif isinstance(before, list) and isinstance(after, list):
        return change
    brief = {side: escape_json(value) for side, value in values.items()}
    return {**change, **brief} if all(len(text) <= _SHORT for text in brief.values()) else change


def _build_fields(details: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Returns the fields of the form that answers a question; None where the answer is typed as text or JSON."""
    arguments = details["arguments"] or {}
    return build_fields(arguments.get("answer_schema"), arguments.get("data"))


async def _read_run(visit: Visit, approval: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the last steps of the waiting run and its cost so far; None if the person may decide but not see the
    run.
    """
    if approval["run_id"] is None or approval["agent"] is None:
        return None
    names = {"app_id": approval["app_id"], "name": approval["agent"], "id": approval["run_id"]}
    try:
        details = await visit.call("agents_runs_get", **names, with_graph=True)
        since = max(0, details["run"]["last_seq"] - _LAST_EVENTS)
        last = await visit.call("agents_runs_events_list", **names, since_seq=since, limit=_LAST_EVENTS)
    except (Forbidden, NotFound):
        return None
    entries = build_timeline(last["events"], details["graph_spec"])
    completed_steps = [
        entry
        for entry in entries
        if entry["kind"] == "step" and any(did["kind"] == "model" or did["took"] is not None for did in entry["did"])
    ]
    path = f"/apps/{approval['app_id']}/runs/{approval['agent']}/{approval['run_id']}"
    steps_taken = max((entry["step"] for entry in entries if entry["kind"] == "step"), default=0)
    most = details["graph_spec"].get("limits", {}).get("max_steps", _MOST_STEPS)
    costs = {
        "taken": steps_taken,
        "most": most,
        "to_come": _estimate(details["run"]["usage"]["cost_usd"], steps_taken, most),
    }
    return {"run": details["run"], "entries": completed_steps[-_LAST_STEPS:], "path": path, **costs}


def _estimate(cost: Any, steps_taken: int, most: int) -> float | None:
    """Returns the dollars that the rest of a run costs if its steps cost as much as those so far; None before the first
    step.
    """
    return None if steps_taken == 0 else float(cost or 0) / steps_taken * max(0, most - steps_taken)


def list_arguments(arguments: Mapping[str, Any]) -> list[tuple[str, str, list[str] | None]]:
    """Returns the name, the text and the parts of each argument. The text is JSON, or the value itself if it has
    several lines. A list of objects, such as operations, has one part for each object.
    """
    rows: list[tuple[str, str, list[str] | None]] = []
    for name, value in arguments.items():
        parts = None
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            parts = [escape_json(item) for item in value]
        text = value if isinstance(value, str) and "\n" in value.strip() else escape_json(value, indent=2)
        rows.append((escape_json(name)[1:-1], text, parts))
    return rows


def _editable(approval: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Returns the part of a call that its decider may change: for a tool server's tool, that tool's own arguments."""
    if approval["tool"] == _REMOTE:
        return arguments.get("arguments", {})
    return {name: value for name, value in arguments.items() if name != _BOUND}


async def approve(visit: Visit) -> str | Context:
    arguments: dict[str, Any] = {} if "arguments" not in visit.form else {"arguments": _parse(visit.form["arguments"])}
    if "even_if_failing" in visit.form:
        arguments["even_if_failing"] = True
    return await decide(visit, "approve", **arguments)


async def reject(visit: Visit) -> str | Context:
    reason = visit.form.get("reason", "").strip()
    arguments = {"reason": reason} if reason else {}
    return await decide(visit, "reject", **arguments)


async def approve_always(visit: Visit) -> str:
    """Approves a key's call, and lets the key call the tool without asking from now on."""
    approval = (await visit.call("approvals_get", approval_id=visit.parts["id"]))["approval"]
    key_id = _find_key(approval)
    if key_id is None:
        raise BadRequest("Only a key has rules about when it asks; this call is a run's.")
    # The rule comes second, because it withdraws the key's other waiting calls.
    await visit.call("approvals_approve", approval_id=approval["id"])
    await visit.call("api_keys_ask", key_id=key_id, tool_name=approval["tool"], ask="never")
    return f"/approvals/{approval['id']}?decided=1"


async def ask_always(visit: Visit) -> str:
    """Makes the key ask before each call of the tool from now on, whatever its policy says. This call keeps waiting."""
    approval = (await visit.call("approvals_get", approval_id=visit.parts["id"]))["approval"]
    key_id = _find_key(approval)
    if key_id is None:
        raise BadRequest("Only a key has rules about when it asks; this call is a run's.")
    await visit.call("api_keys_ask", key_id=key_id, tool_name=approval["tool"], ask="always")
    return f"/approvals/{approval['id']}"


def _find_key(approval: Mapping[str, Any]) -> str | None:
    """Returns the id of the key that proposed the call; None if a run proposed it."""
    kind, _, key_id = approval["proposer"].partition(":")
    return key_id if kind == "key" else None


async def answer(visit: Visit) -> str | Context:
    """Answers a run's question. The answer comes from the form's fields, from JSON that was typed, or from other text
    as its `answer`.
    """
    details = await visit.call("approvals_get", approval_id=visit.parts["id"])
    fields = _build_fields(details)
    if fields is not None:
        data = read_answer(fields, visit.form)
    else:
        text = visit.form.get("answer", "")
        try:
            value = parse_json(text)
        except ValueError:
            value = text
        data = value if isinstance(value, dict) else {"answer": value}
    even = "even_if_failing" in visit.form
    return await decide(visit, "approve", data=data, even_if_failing=even)


async def show_edit(visit: Visit) -> Context:
    """Shows a person's changes beside the proposed arguments, before the call is approved."""
    details = await visit.call("approvals_get", approval_id=visit.parts["id"])
    proposed_arguments = _editable(details["approval"], details["arguments"] or {})
    edited_arguments = _parse(visit.query.get("arguments", "")) if "arguments" in visit.query else proposed_arguments
    return {
        "title": details["approval"]["title"],
        "approval": details["approval"],
        "given": json.dumps(edited_arguments, indent=2),
        "rows": compare_texts(escape_json(proposed_arguments, indent=2), escape_json(edited_arguments, indent=2)),
        "is_same": edited_arguments == proposed_arguments,
    }


def _parse(text: str) -> Any:
    try:
        value = parse_json(text)
    except ValueError as exc:
        raise BadRequest('The arguments are not JSON. Text needs quotes: "yes".') from exc
    if not isinstance(value, dict):
        raise BadRequest("The arguments must be a JSON object.")
    return value


PAGES = (
    Page("/approvals/{id}", "Approval", "approval.html", show_approval, follows_inbox=True),
    Page("/approvals/{id}/edit", "Edit", "edit.html", show_edit),
)
FORMS = (
    Form("/approvals/{id}/approve", approve, "confirm.html"),
    Form("/approvals/{id}/reject", reject, "confirm.html"),
    Form("/approvals/{id}/approve-always", approve_always),
    Form("/approvals/{id}/ask-always", ask_always),
    Form("/approvals/{id}/answer", answer, "confirm.html"),
)
