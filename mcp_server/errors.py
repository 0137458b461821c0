"""Errors that the MCP endpoint raises itself, before a tool is called or beside one."""

from baobab.tools.core.errors import (
    BadRequest,
    BaobabError,
    Conflict,
    Forbidden,
    MalformedBody,
    NotFound,
    TooManyStreams,
)


class NoMessage(MalformedBody):
    summary = "The id of a request must be a string or an integer."
    remediation = "Send a string or an integer as the id. Leave it out only for a notification."


class BatchTooLong(BadRequest):
    summary = "The batch has too many messages."
    remediation = "Send at most details.limit messages in one batch."


class ViewInvalid(BadRequest):
    summary = "A parameter of the MCP address is not valid."
    remediation = (
        "Use these parameters: toolsets (names from details.toolsets, or all), app_id, read_only=true, results=text, "
        "max_characters."
    )


class ToolsetsClosed(Forbidden):
    code = "MCP_TOOLSETS_CLOSED"
    summary = "This credential may use no tool of the toolsets that the MCP address names."
    remediation = "Name toolsets of details.open in the address, or connect with a credential that opens the others."


class OtherApp(BadRequest):
    summary = "This connection is bound to another app."
    remediation = "Leave `app_id` out, connect without ?app_id=, or use a key of the other app."


class ApprovalStateSpent(BadRequest):
    code = "APPROVAL_STATE_SPENT"
    summary = "This requestState belongs to no call, or to one whose result has been fetched."
    remediation = "Make the call again without requestState, as a new call."


class UnknownSession(NotFound):
    code = "SESSION_UNKNOWN"
    summary = "This session does not belong to this credential."
    remediation = "Call initialize for a new session, or leave Mcp-Session-Id out: no request needs one."


class CutValueSent(BadRequest):
    code = "MCP_CUT_VALUE"
    summary = "A value holds the mark of a value that was cut for you to read."
    remediation = (
        "Nothing was written. Leave the value out to keep it as it is; or read all of it, as the mark says, and send "
        "it whole and without the mark."
    )


class PartInvalid(BadRequest):
    summary = "`read_on` is not a place in a result."
    remediation = "Copy it from the mark of a cut value, or leave it out to read from the start."


class PartChanged(Conflict):
    code = "MCP_PART_CHANGED"
    summary = "What you want to read on has changed, or the arguments are not those of the call before."
    remediation = "Make the call without `read_on`, and take the place from its result."


ERRORS: tuple[type[BaobabError], ...] = (
    NoMessage,
    BatchTooLong,
    ViewInvalid,
    ToolsetsClosed,
    OtherApp,
    CutValueSent,
    PartInvalid,
    PartChanged,
    ApprovalStateSpent,
    UnknownSession,
    TooManyStreams,
)
