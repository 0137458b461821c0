"""Edits: other arguments that a person gives a call of a run when approving it."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from baobab.runtime.agents.offers import BOUND, REMOTE
from baobab.tools.core.approvals import Edit
from baobab.tools.core.auth.callers import Anonymous, EndUser
from baobab.tools.core.auth.deciders import Decider, person
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BadRequest, Forbidden
from baobab.tools.core.invalid import invalid
from baobab.tools.core.wording import redact_arguments, restore_hidden

_QUESTION = "interrupt"


async def edit_call(call: Call, row: Any, decider: Decider, given: Mapping[str, Any]) -> Edit:
    """The arguments of a waiting call with what its decider gave in place of what the run chose.

    They are held against the tool's schema and the decider's own rights; executed, against the rights of whoever
    started the run. Forbidden, BadRequest.
    """
    tool, caller = call.registry.find(row.tool), call.caller
    asked = call.services.approvals.arguments(row)
    if row.tool == REMOTE and not decider.runs_app:
        # They cannot call it but as the graph does.
        raise Forbidden("Only admins change what is sent to a tool server.")
    if isinstance(caller, (EndUser, Anonymous)) and row.tool != _QUESTION and person(caller) != row.starter:
        raise Forbidden("Only those who run the app, and whoever started the run, change what a call says.")
    if row.tool == REMOTE:
        # Which tool of which server is bound, whoever edits.
        whole = {**asked, "arguments": dict(given)}
    else:
        if given.get(BOUND, asked[BOUND]) != asked[BOUND]:
            raise BadRequest(
                f"`{BOUND}` is bound to the run's own app.", remediation=f"Leave `{BOUND}` out: it cannot be changed."
            )
        given = {name: value for name, value in given.items() if name != BOUND}
        # Whoever edits never saw the secrets: where these read as hidden still, they are those that were asked with.
        whole = restore_hidden(tool, asked, {**given, BOUND: asked[BOUND]})
        given = redact_arguments(tool, given)
    try:
        tool.validate(whole)
    except ValidationError as exc:
        raise invalid(exc, tool.arguments) from exc
    own = Call(call.registry, call.services, tool, caller, call.context, call.unit)
    own.app = await call.services.directory.app(asked[BOUND])
    await tool.access.authorise(own, whole)
    return Edit(dict(given), whole)
