"""What this door refuses by itself, before or beside any tool."""

from baobab.tools.core.errors import BadRequest, BaobabError, MalformedBody, NotFound, TooManyStreams


class NoMessage(MalformedBody):
    summary = "The id of a request is a text or a whole number."
    remediation = "Send an id that you can tell the answer by, or none at all for a notification."


class BatchTooLong(BadRequest):
    summary = "The batch has more messages than one may have."
    remediation = "Send fewer at once; details.limit is how many."


class ViewInvalid(BadRequest):
    summary = "The address asks for a view that there is none of."
    remediation = "Use /mcp with toolsets (names of details.toolsets, or all), app_id, read_only=true, results=text."


class OtherApp(BadRequest):
    summary = "This connection is bound to another app."
    remediation = "Leave `app_id` out, or connect without ?app_id= (or with a key of that app)."


class ApprovalStateSpent(BadRequest):
    code = "APPROVAL_STATE_SPENT"
    summary = "This requestState belongs to a call whose result has been fetched, or to none."
    remediation = "Make the call again without requestState; it is a new call then."


class UnknownSession(NotFound):
    code = "SESSION_UNKNOWN"
    summary = "This session was not begun with this credential."
    remediation = "Begin with initialize, or leave Mcp-Session-Id out: any request may come at any time."


ERRORS: tuple[type[BaobabError], ...] = (
    NoMessage,
    BatchTooLong,
    ViewInvalid,
    OtherApp,
    ApprovalStateSpent,
    UnknownSession,
    TooManyStreams,
)
