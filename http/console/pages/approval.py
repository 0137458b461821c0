"""/console/approvals/{id}: one call that waits for a decision, with its arguments and effects, and the form that
decides.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from baobab.http.console.call_form import CallForm, build_answer_form, build_call_form
from baobab.http.console.call_view import (
    BOUND,
    QUESTION,
    REMOTE,
    build_view,
    compare_values,
    pick_arguments,
    say_how_final,
)
from baobab.http.console.compare import compare_texts
from baobab.http.console.deciding import decide
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.rendering import say_approvers, say_duration
from baobab.http.console.run_view import build_timeline
from baobab.http.console.visit import Visit
from baobab.http.console.waiting import find_alike, load_places, read_filters
from baobab.tools.approvals.inbox.tools import SOON
from baobab.tools.core.errors import BadRequest, Forbidden, NotFound
from baobab.tools.core.guard.approvals import AlreadyDecided
from baobab.tools.core.guard.escaping import escape_json
from baobab.tools.core.types import parse_json

_VIA = {"mcp": "over MCP", "rest": "over REST", "console": "in the console"}
_ROW = re.compile(r'the row "(?:[^"\\]|\\.)*"')
_LAST_EVENTS, _LAST_STEPS = 60, 4
_MOST_STEPS = 50
"""The most steps of a run whose graph sets no limit (docs/graph-spec.md)."""
_ANSWER_AND = {"write": "Answer, and save it", "external": "Answer, and send it", "destructive": "Answer, and delete"}
_SHORT = 80
"""The most characters of a value that is shown in the table of values before and after."""


async def show_approval(visit: Visit) -> Context:
    details = await visit.call("approvals_get", approval_id=visit.parts["id"])
    approval = details["approval"]
    is_question, waits = approval["tool"] == QUESTION, approval["status"] == "pending"
    changes = details["changes"] or []
    then = details["then"]
    decides, effect = waits and details["may_decide"], _find_effect(visit, approval, changes)
    waiting = await load_places(visit, read_filters(visit.query))
    return {
        **details,
        **build_view(details),
        **show_changes(changes),
        "title": approval["title"],
        "effect": effect,
        "how_final": _say_how_final(visit, details, effect) if decides else None,
        "via": _VIA.get(approval["asker"]["door"]),
        "remote": details["arguments"] if approval["tool"] == REMOTE else None,
        "is_question": is_question,
        "waits": waits,
        "is_late": "late" in visit.query,
        "left": say_duration((approval["expires_at"] - visit.now).total_seconds()),
        "who": say_approvers(approval["approvers"]),
        "editable": decides and not is_question and _is_editable(details),
        "has_alike": decides and len(find_alike(waiting.calls, approval)) > 1,
        # A key's own call: its rules are the key's. A question is no call that could be allowed once and for all.
        "asks_of_key": decides and _find_key(approval) is not None and not is_question,
        "form": _build_answer_form(details) if is_question and decides else None,
        "then_view": _show_then(then, visit.registry.find(then["tool"]).effect) if then else None,
        "so_far": await _read_run(visit, approval),
        "waiting": waiting,
    }


def _say_how_final(visit: Visit, details: Mapping[str, Any], effect: str) -> str:
    """Says whether a decision can be taken back. An answer that approves a write is as final as that write."""
    approval, then = details["approval"], details["then"]
    undo, effects, lends = approval["undo"], {effect}, approval["run_as"] is not None
    if then is not None and then["may_consent"]:
        write = visit.registry.find(then["tool"])
        # What is written depends on the answer.
        undo = "unknown" if write.undone_by else "never"
        effects, lends = {write.effect}, lends or then["run_as"] is not None
    is_final = lends or bool(effects & {"destructive", "external"})
    is_due = approval["expires_at"] - visit.now <= SOON
    may_undo = visit.may("data_undo")
    return say_how_final(undo, approval["undo_days"], is_final=is_final, is_due=is_due, may_undo=may_undo)


def _is_editable(details: Mapping[str, Any]) -> bool:
    """Returns whether whoever decides may change the arguments of a call."""
    approval = details["approval"]
    is_of_one = not (isinstance(approval["approvers"], dict) and "persons" in approval["approvers"])
    has_open_fields = approval["run_as"] is None or bool(approval["edit"])
    return details["arguments"] is not None and approval["run_id"] is not None and is_of_one and has_open_fields


def _show_then(then: Mapping[str, Any], effect: str) -> dict[str, Any]:
    """Returns the write that a question announces: its title, its values with those that the answer fills, and what the
    button says. effect: of the tool that writes.
    """
    lines = then["summary"].split("\n")
    arguments = {name: value for name, value in (then["arguments"] or {}).items() if name != BOUND}
    form = build_call_form({}, arguments)
    values = [
        {
            **compare_values(each.name, None, each.value),
            "name": each.name.rpartition(".")[2],
            "is_open": each.name in then["open"],
        }
        for each in form.fields
    ]
    # The row is that of the call below it; its id tells nobody anything.
    title = _ROW.sub("one row", lines[0].removesuffix("."))
    return {"title": title, "values": values, "button": _ANSWER_AND.get(effect, "Answer and approve")}


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
    if approval["tool"] == REMOTE:
        # The short ones first: to whom a mail goes stands before its text.
        return dict(sorted(arguments.get("arguments", {}).items(), key=lambda item: len(escape_json(item[1]))))
    return {name: value for name, value in arguments.items() if name != BOUND or value != approval["app_id"]}


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


def _build_answer_form(details: Mapping[str, Any]) -> CallForm | None:
    """Returns the form that answers a question; None where the answer is typed as text or JSON."""
    arguments = details["arguments"] or {}
    return build_answer_form(arguments.get("answer_schema"), arguments.get("data"))


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


async def approve(visit: Visit) -> str | Context:
    arguments: dict[str, Any] = {}
    if "edited" in visit.form:
        details = await visit.call("approvals_get", approval_id=visit.parts["id"])
        form = _build_edit_form(visit, details)
        values = _read_form(form, visit)
        if values != pick_arguments(details["approval"], details["arguments"] or {}):
            arguments["arguments"] = values
        return await _decide(visit, "approve", form, **arguments)
    if "even_if_failing" in visit.form:
        arguments["even_if_failing"] = True
    return await _decide(visit, "approve", **arguments)


async def reject(visit: Visit) -> str | Context:
    reason = visit.form.get("reason", "").strip()
    arguments: dict[str, Any] = {"reason": reason} if reason else {}
    return await _decide(visit, "reject", **arguments)


async def _decide(visit: Visit, decision: str, form: CallForm | None = None, **arguments: Any) -> str | Context:
    """Makes a decision. One that comes too late leads to the call, which says who was first."""
    try:
        return await decide(visit, decision, **arguments)
    except AlreadyDecided:
        return f"/approvals/{visit.parts['id']}?late=1"
    except BadRequest as error:
        raise _place_faults(form, error) from error


def _read_form(form: CallForm, visit: Visit) -> dict[str, Any]:
    """Returns the values that were typed. Raises BadRequest, with what is wrong beside each field."""
    values = form.read(visit.form)
    if not form.is_valid:
        faults = [{"field": each.id, "problem": each.error} for each in form.fields if each.error]
        raise BadRequest("Some fields cannot be read.", details={"fields": faults})
    return values


def _place_faults(form: CallForm | None, error: BadRequest) -> BadRequest:
    """Returns the refusal of a tool with the fields of the form in place of its arguments."""
    faults = error.details.get("fields")
    if form is None or not isinstance(faults, list):
        return error
    for fault in faults:
        path = str(fault.get("field", "")).split(".")
        # An answer is the tool's `data`, and a tool server's tool has arguments of its own.
        for start in range(min(2, len(path))):
            form.add_error(path[start:], str(fault.get("problem", "")))
    placed_faults = [{"field": each.id, "problem": each.error} for each in form.fields if each.error]
    if not placed_faults:
        return error
    return BadRequest(error.message, remediation=error.remedy, details={"fields": placed_faults})


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
    form = _build_answer_form(details)
    if form is not None:
        data = _read_form(form, visit)
    else:
        text = visit.form.get("answer", "")
        try:
            value = parse_json(text)
        except ValueError:
            value = text
        data = value if isinstance(value, dict) else {"answer": value}
    even = "even_if_failing" in visit.form
    return await _decide(visit, "approve", form, data=data, even_if_failing=even)


async def show_edit(visit: Visit) -> Context:
    """Shows the arguments of a call in fields."""
    details = await visit.call("approvals_get", approval_id=visit.parts["id"])
    return _show_form(visit, details, _build_edit_form(visit, details), None)


async def show_difference(visit: Visit) -> Context:
    """Shows a person's changes beside what was proposed, before the call is approved."""
    details = await visit.call("approvals_get", approval_id=visit.parts["id"])
    form = _build_edit_form(visit, details)
    values = _read_form(form, visit)
    rows = [
        compare_values(each.name, each.value, _pick(values, each.path))
        for each in form.fields
        if _pick(values, each.path) != each.value
    ]
    return _show_form(visit, details, form, rows)


def _show_form(visit: Visit, details: Mapping[str, Any], form: CallForm, rows: Any) -> dict[str, Any]:
    approval = details["approval"]
    return {
        "title": f"Edit: {approval['title']}",
        "approval": approval,
        "form": form,
        "rows": rows,
        "right": build_view(details)["right"],
        "effect": _find_effect(visit, approval, details["changes"] or []),
    }


def _pick(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _build_edit_form(visit: Visit, details: Mapping[str, Any]) -> CallForm:
    """Returns the form in which the arguments of a call are changed. What its node fixes is locked."""
    approval, tool = details["approval"], visit.registry.tools.get(details["approval"]["tool"])
    # What a tool server's tool takes is not known here: the values say which fields there are.
    schema = {} if tool is None or approval["tool"] == REMOTE else tool.input_schema
    form = build_call_form(schema, pick_arguments(approval, details["arguments"] or {}))
    if approval["run_as"] is not None:
        form.lock(approval["edit"] or ())
    return form


PAGES = (
    Page("/approvals/{id}", "Approval", "approval.html", show_approval, follows_inbox=True),
    Page("/approvals/{id}/edit", "Edit", "edit.html", show_edit),
)
FORMS = (
    Form("/approvals/{id}/edit", show_difference, "edit.html"),
    Form("/approvals/{id}/approve", approve, "confirm.html"),
    Form("/approvals/{id}/reject", reject, "confirm.html"),
    Form("/approvals/{id}/approve-always", approve_always),
    Form("/approvals/{id}/ask-always", ask_always),
    Form("/approvals/{id}/answer", answer, "confirm.html"),
)
