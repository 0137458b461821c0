"""The errors of approvals."""

from baobab.tools.core import BadRequest, BaobabError, Conflict, NotFound


class ApprovalNotFound(NotFound):
    code = "APPROVAL_NOT_FOUND"
    summary = "There is no such approval, or this credential may not see it."
    remediation = (
        "op:approvals_list lists those that you may see. In a run's event the id is `approval_id`; its "
        "`approval_token` is for op:agents_runs_resume."
    )


class OnlyRunsAreEdited(BadRequest):
    code = "APPROVAL_NOT_EDITABLE"
    summary = "Only calls of an agent's run can be approved with changed arguments."
    remediation = "Reject it, and say in the reason what you want instead: whoever asked must know what was done."


class Unfinished(BaobabError):
    code = "APPROVED_CALL_UNFINISHED"
    status = 409
    summary = "No server could finish the approved call; it may have been begun."
    remediation = "Read the current state, and make the call again if you still want it."


class CallOutdated(Conflict):
    code = "APPROVAL_OUTDATED"
    summary = "The server was upgraded since the call was proposed, and its tool has changed, so it cannot be made."
    remediation = "Reject it. Whoever proposed it makes the call again, as the tool takes it now."
