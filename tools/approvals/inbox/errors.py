"""The errors of the inbox."""

from baobab.tools.core import BadRequest, Conflict


class MustBeConfirmed(Conflict):
    code = "APPROVAL_NEEDS_CONFIRMATION"
    summary = "The call deletes something, leaves the server or uses the app's right, so its approval counts at once."
    remediation = "Read what it would do, and confirm the approval (`confirmed`)."


class AlreadyHeld(Conflict):
    code = "APPROVAL_HELD"
    summary = "You have decided about this call a moment ago; the decision counts within ten seconds."
    remediation = "Wait, or take it back (op:approvals_take_back) and decide anew."


class TooLateToTakeBack(Conflict):
    code = "APPROVAL_HELD_TOO_LONG"
    summary = "The decision counts already, so it cannot be taken back."
    remediation = "Read what became of the call (op:approvals_get). If it wrote rows, undo that with op:data_undo."


class CallChanged(Conflict):
    code = "APPROVAL_NOT_AS_READ"
    summary = "What the call would do has changed since it was shown, so it was not approved."
    remediation = "Read it again, and decide about it alone."


class CannotSnooze(BadRequest):
    code = "APPROVAL_SNOOZE_TOO_LATE"
    summary = "The call expires within the hour, so it cannot be put off."
    remediation = "Decide about it now, or leave it."
