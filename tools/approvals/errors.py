"""What can go wrong with an approval."""

from baobab.tools.errors import Conflict, Forbidden, NotFound


class ApprovalNotFound(NotFound):
    code = "APPROVAL_NOT_FOUND"
    summary = "There is no such approval, or it is none of this credential's business."
    remediation = "op:approvals_list lists those that you may see."


class NotYoursToDecide(Forbidden):
    code = "APPROVAL_SELF_DECISION"
    summary = "The credential that proposed a call cannot decide it, nor can a key that itself needs approval."
    remediation = "A person decides, signed in (op:platform_login) or with a key of their own without limits."


class AlreadyDecided(Conflict):
    code = "APPROVAL_ALREADY_DECIDED"
    summary = "The approval is no longer pending."
    remediation = "Read it to see what became of it (details.status); propose the call anew if it is still wanted."
