"""Edits: the arguments of a run's call that a person changes when approving it."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from baobab.runtime.agents.answer_schema import find_mismatch
from baobab.runtime.agents.offers import BOUND, REMOTE
from baobab.tools.core.approvals import Edit
from baobab.tools.core.auth.callers import Anonymous, EndUser
from baobab.tools.core.auth.deciders import Decider, person
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BadRequest, Forbidden, MissingField
from baobab.tools.core.invalid import invalid
from baobab.tools.core.wording import redact_arguments, restore_hidden

_QUESTION = "interrupt"


async def edit_call(call: Call, row: Any, decider: Decider, edited_arguments: Mapping[str, Any]) -> Edit:
    """Returns the arguments of a waiting call, with those that its decider gave in place of the run's.

    They are checked against the tool's schema and the decider's rights here, and against the rights of whoever started
    the run when the call is executed. Raises Forbidden and BadRequest.
    """
    tool, caller = call.registry.find(row.tool), call.caller
    proposed_arguments = call.services.approvals.arguments(row)
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
    if row.tool == _QUESTION:
        arguments |= _require_answer(proposed_arguments, arguments)
    try:
        tool.validate(arguments)
    except ValidationError as exc:
        refusal = invalid(exc, tool.arguments, tool.input_schema)
        # A misspelt name has a remedy of its own.
        if refusal.remedy == MissingField.remediation:
            refusal.remedy = "Send all arguments of the call in `arguments`, not only the changed ones."
        raise refusal from exc
    decider_call = Call(call.registry, call.services, tool, caller, call.context, call.unit)
    if tool.app_parameter == BOUND:
        decider_call.app = await call.services.directory.app(proposed_arguments[BOUND])
    await tool.access.authorise(decider_call, arguments)
    return Edit(dict(edited_arguments), arguments)


def _require_answer(proposed_arguments: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the question's answer schema, which an edit cannot change. Raises BadRequest for an answer that does not
    match it.
    """
    schema = proposed_arguments.get("answer_schema")
    if schema is None:
        return {}
    if (mismatch := find_mismatch(schema, arguments.get("data"))) is not None:
        raise BadRequest(
            f"The answer does not match the question's `answer_schema`: {mismatch}.",
            remediation="Send `data` as the schema describes it.",
        )
    return {"answer_schema": schema}
