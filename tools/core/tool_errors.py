"""The errors that a call of a tool can answer, as documents and pages list them."""

from baobab.tools.core.call import Tool
from baobab.tools.core.errors import (
    AppNotFound,
    ApprovalRejected,
    ApprovalRequired,
    BadRequest,
    BaobabError,
    BodyTooLarge,
    Damaged,
    Forbidden,
    ImpersonationForbidden,
    Internal,
    InvalidApiKey,
    InvalidToken,
    InvalidType,
    InvalidUserToken,
    KeyLimited,
    MalformedBody,
    MissingField,
    OriginRefused,
    RateLimited,
    Unavailable,
    UnknownField,
    UpgradeRequired,
    UserTokenExpired,
)
from baobab.tools.core.guard.approvals import CallFailed, StreamCannotWait, TooLargeToPropose, TooManyPending
from baobab.tools.core.liveness import InstallationIsCopy

# The errors of reading a credential and its headers, which come before the operation's own.
_CREDENTIALS = (
    InvalidApiKey,
    InvalidToken,
    InvalidUserToken,
    UserTokenExpired,
    Forbidden,
    ImpersonationForbidden,
    KeyLimited,
)
# The errors that a key which must ask can get from a call that changes something.
_APPROVAL = (ApprovalRequired, ApprovalRejected, TooManyPending, TooLargeToPropose, CallFailed)


def errors_of(tool: Tool) -> list[type[BaobabError]]:
    """Returns every error that a call of a tool can answer: its own, and those of the registry and the interfaces."""
    own_errors = (*tool.raises, *tool.access.raises, BadRequest, UnknownField, OriginRefused)
    kinds: dict[type[BaobabError], None] = dict.fromkeys(own_errors)
    if tool.access.credential:
        kinds |= dict.fromkeys(_CREDENTIALS)
        if tool.effect != "read":
            kinds |= dict.fromkeys(_APPROVAL)
            if tool.rest and tool.rest.raw_body:
                kinds[StreamCannotWait] = None
    if tool.effect == "external":
        kinds[InstallationIsCopy] = None
    if tool.input_schema["properties"]:
        kinds |= dict.fromkeys((MissingField, InvalidType))
    if tool.app_parameter:
        kinds[AppNotFound] = None
    if tool.rest and tool.rest.method in ("POST", "PUT", "PATCH"):
        kinds |= dict.fromkeys((MalformedBody, BodyTooLarge))
    if tool.rest and tool.rest.socket:
        kinds[UpgradeRequired] = None
    if tool.limit is not None:
        kinds[RateLimited] = None
    kinds |= dict.fromkeys((Internal, Damaged, Unavailable))
    return list(kinds)
