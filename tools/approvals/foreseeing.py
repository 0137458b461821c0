"""Foresees what a waiting call would do now: for people who read it, and before somebody approves it."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.agents.edits import edit_call, require_answer
from baobab.tools.approvals.acting import restore_acting_caller
from baobab.tools.approvals.carrying_over import require_makeable
from baobab.tools.approvals.consents import AnnouncedCall
from baobab.tools.approvals.errors import CallOutdated
from baobab.tools.approvals.tables import FieldCipher
from baobab.tools.core import BaobabError, Call, EndUser, Unavailable
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.deciders import Decider
from baobab.tools.core.call import Preview
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import Internal
from baobab.tools.core.guard.approvals import WouldFail
from baobab.tools.core.outages import STORE_OUTAGES


async def foresee_row(call: Call, row: Any, arguments: Mapping[str, Any]) -> Preview:
    """Returns what the waiting call of a row would do now, with the right that it uses. Raises what it would fail with.

    call: reads the row.
    """
    require_makeable(call.registry, row, arguments)
    tool = call.registry.find(row.tool)
    caller = await restore_acting_caller(call.services, call.unit, row, tool)
    context = RequestContext(row.door, row.request_id, base_url=call.context.base_url)
    return await call.registry.preview(tool, arguments, caller, context, call.unit)


async def require_success(
    call: Call,
    seals: FieldCipher,
    row: Any,
    decider: Decider,
    arguments: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
) -> bool:
    """Raises WouldFail if the waiting call of a row would fail now, with the arguments or the answer of its decider, or
    the write that a question announces, if the answer approves it. Returns whether they would delete something now.

    What passes soon, such as a store that does not answer, is not held against it.
    """
    call_arguments: Mapping[str, Any] = call.services.approvals.arguments(row)
    if arguments is not None or data is not None:
        call_arguments = (await edit_call(call, row, decider, arguments, data)).all_arguments
    write = AnnouncedCall.of(call.registry, seals, row)
    write_arguments = None
    if write is not None and write.may_consent(decider):
        require_answer(row.tool, call_arguments)
        write_arguments = write.complete(call_arguments)
    try:
        previews = [await foresee_row(call, row, call_arguments)]
        if write is not None and write_arguments is not None:
            previews.append(await foresee_row(call, write.as_row, write_arguments))
    except (CallOutdated, proposers.CallerUnreadable):
        # Nobody can approve it at all.
        raise
    except (*STORE_OUTAGES, Unavailable, Internal):
        # Nobody knows what it would delete.
        return True
    except BaobabError as error:
        if isinstance(call.caller, EndUser) and (arguments is not None or data is not None):
            # The call may see more than its decider, who could try values of their own to learn what is stored.
            raise WouldFail from error
        raise WouldFail.of(error) from error
    return any(change["after"] is None for preview in previews for change in preview.changes or ())
