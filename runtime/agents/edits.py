"""Edits: the arguments of a run's call that a person changes when approving it."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from baobab.runtime.agents.offers import BOUND, REMOTE
from baobab.runtime.agents.spec.answer_schema import find_mismatch
from baobab.runtime.agents.spec.app_rights import is_covered, list_changed_fields
from baobab.tools.core.auth.access import authorise_call
from baobab.tools.core.auth.callers import Anonymous, EndUser
from baobab.tools.core.auth.deciders import Decider, person
from baobab.tools.core.auth.names import find_decider
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.call import Call, Tool
from baobab.tools.core.errors import BadRequest, Forbidden, MissingField
from baobab.tools.core.guard.app_rights import name_editable_fields
from baobab.tools.core.guard.approvals import AlreadyDecided, Edit
from baobab.tools.core.guard.wording import redact_arguments, restore_hidden
from baobab.tools.core.invalid import invalid

_QUESTION = "interrupt"


class FieldFixed(BadRequest):
    code = "APPROVAL_FIELD_FIXED"
    summary = "The call uses the app's right, so only the fields that its node lists in `edit` can be changed."
    remediation = "Send all other arguments as they are; details.editable lists what can be changed."


async def edit_call(
    call: Call, row: Any, decider: Decider, edited_arguments: Mapping[str, Any] | None, data: Mapping[str, Any] | None
) -> Edit:
    """Returns the arguments of a waiting call, with those that its decider gave in place of the run's.

    They are checked against the tool's schema and the decider's rights here, and against the rights of whoever started
    the run when the call is executed. Raises AlreadyDecided, Forbidden and BadRequest.

    data: the answer to a question, in place of arguments.
    """
    tool, caller = call.registry.find(row.tool), call.caller
    if row.status != "pending":
        # The arguments of a decided call are erased.
        raise AlreadyDecided.of(row, await find_decider(call.execute, row))
    proposed_arguments = call.services.approvals.arguments(row)
    if row.tool == _QUESTION:
        edited_arguments = _complete_answer(proposed_arguments, edited_arguments, data)
    elif data is not None:
        raise BadRequest(
            f"`data` answers a question; this is a call of {row.tool}.",
            remediation="Send `arguments` to change what it is called with, or neither to approve it as it is.",
        )
    edited_arguments = edited_arguments or {}
    if row.app_right is not None:
        return _edit_fields(row, tool, proposed_arguments, edited_arguments)
    if not may_edit(row, decider):
        raise Forbidden(
            "An approver changes only what the agent's author lets approvers change.",
            remediation="Approve the call as it is, or reject it and say in the reason what you want instead.",
        )
    if row.tool == REMOTE and not decider.runs_app:
        # Other deciders could not make this call themselves.
        raise Forbidden("Only admins can change the arguments of a call to a tool server.")
    if isinstance(caller, (EndUser, Anonymous)) and row.tool != _QUESTION and person(caller) != row.starter:
        raise Forbidden("Only those who run the app and whoever started the run can change the arguments of a call.")
    if row.tool == REMOTE:
        # The tool and its server cannot be changed.
        arguments = {**proposed_arguments, "arguments": dict(edited_arguments)}
    else:
        # A tool of an organisation does not name the app.
        bound_argument = {BOUND: proposed_arguments[BOUND]} if tool.app_parameter == BOUND else {}
        if bound_argument and edited_arguments.get(BOUND, proposed_arguments[BOUND]) != proposed_arguments[BOUND]:
            raise BadRequest(
                f"`{BOUND}` is bound to the run's own app.", remediation=f"Leave `{BOUND}` out: it cannot be changed."
            )
        edited_arguments = {name: value for name, value in edited_arguments.items() if name not in bound_argument}
        # The decider saw secrets as hidden: where they still read as hidden, the proposed ones are used.
        arguments = restore_hidden(tool, proposed_arguments, {**edited_arguments, **bound_argument})
        edited_arguments = redact_arguments(tool, edited_arguments)
    _validate(tool, arguments)
    decider_call = Call(call.registry, call.services, tool, caller, call.context, call.unit)
    if tool.app_parameter == BOUND:
        decider_call.app = await call.services.directory.app(proposed_arguments[BOUND])
    await authorise_call(decider_call, arguments)
    return Edit(dict(edited_arguments), arguments)


def may_edit(row: Any, decider: Decider) -> bool:
    """Returns whether whoever may decide about a call may also change it: an approver could not make it themselves, so
    only questions, and calls that use the app's right, in the fields that their node lists in `edit`.
    """
    if row.app_right is not None:
        return bool(row.app_right["edit"])
    return row.tool == _QUESTION or decider.role != APPROVER


def _validate(tool: Tool, arguments: Mapping[str, Any]) -> None:
    try:
        tool.validate(arguments)
    except ValidationError as exc:
        refusal = invalid(exc, tool.arguments, tool.input_schema)
        # A misspelt name has a remedy of its own.
        if refusal.remedy == MissingField.remediation:
            refusal.remedy = "Send all arguments of the call in `arguments`, not only the changed ones."
        raise refusal from exc


def _edit_fields(row: Any, tool: Tool, proposed_arguments: dict[str, Any], edited_arguments: Mapping[str, Any]) -> Edit:
    """Returns the arguments of a call that uses the app's right, with the fields that its node lets approvers change.

    The right is the app's and not the decider's, so nothing else can be changed. Raises FieldFixed and BadRequest.
    """
    places = row.app_right["edit"]
    bound_argument = {BOUND: proposed_arguments[BOUND]}
    arguments = restore_hidden(tool, proposed_arguments, {**bound_argument, **edited_arguments})
    changed_fields = list_changed_fields(proposed_arguments, arguments)
    fixed_fields = [".".join(field) for field in changed_fields if not is_covered(field, places)]
    if fixed_fields:
        editable_fields = name_editable_fields(row.app_right)
        remediation = (
            f"Send all other arguments as they are. What can be changed: {', '.join(editable_fields)}."
            if editable_fields
            else "Approve it without `arguments`, or reject it and say in the reason what you want instead."
        )
        raise FieldFixed(
            f"`{fixed_fields[0] or 'arguments'}` cannot be changed here: the call uses the app's right.",
            remediation=remediation,
            details={"fields": fixed_fields[:20], "editable": editable_fields},
        )
    _validate(tool, arguments)
    written_arguments = {name: value for name, value in arguments.items() if name not in bound_argument}
    return Edit(redact_arguments(tool, written_arguments), arguments)


def _complete_answer(
    proposed_arguments: Mapping[str, Any], edited_arguments: Mapping[str, Any] | None, data: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the arguments of a question with its answer. What the decider left out stays; the schema always does."""
    if edited_arguments is not None and data is not None:
        raise BadRequest("`data` and `arguments` are two ways to answer.", remediation="Send `data` alone.")
    answer = {"data": data} if edited_arguments is None else edited_arguments
    return {name: value for name, value in proposed_arguments.items() if name != BOUND} | {
        name: value for name, value in answer.items() if name != "answer_schema"
    }


def require_answer(tool: str, arguments: Mapping[str, Any]) -> None:
    """Raises BadRequest if a question is approved with data that do not match its answer schema."""
    schema = arguments.get("answer_schema")
    if tool != _QUESTION or schema is None:
        return
    data = arguments.get("data")
    if (mismatch := find_mismatch(schema, data)) is not None:
        problem = "there is none yet" if data is None else mismatch
        raise BadRequest(
            f"The question wants an answer that matches its `answer_schema`: {problem}.",
            remediation="Send the answer as the object `data`, as the question's `answer_schema` describes it.",
            details={"answer_schema": schema},
        )
