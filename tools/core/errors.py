"""The errors that any tool may answer. A domain's own stand in its folder, beside the code that raises them.

An error is a class: code, status and remedy are known before anything happens, so that the OpenAPI document, the
catalogue and docs/errors.md are made from them. Only the interfaces render errors.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

Naming = Callable[[str], str]
"""Turns a tool's name into what its reader calls the operation: that name over MCP, method and path over REST."""

_OPERATION = re.compile(r"\bop:([a-z][a-z0-9_]*)")


def name_operations(text: str, naming: Naming = str) -> str:
    """Returns a text in which each reference to an operation (`op:apps_list`) is put in an interface's words."""
    return _OPERATION.sub(lambda match: naming(match[1]), text) if "op:" in text else text


def name_operations_within(data: Any, naming: Naming = str) -> Any:
    """Does the same in all texts of JSON data, such as a schema."""
    match data:
        case str():
            return name_operations(data, naming)
        case dict():
            return {name: name_operations_within(value, naming) for name, value in data.items()}
        case list() | tuple():
            return [name_operations_within(item, naming) for item in data]
    return data


class BaobabError(Exception):
    """The root: `code` and `status` name the kind; the message says what happened, the remediation what to do.

    Both name operations as `op:apps_list`. Whoever reads them gets the tool's name, or what `naming` makes of it:
    `Registry.run` sets that by the interface through which the call came.
    """

    code: ClassVar[str]
    status: ClassVar[int]
    summary: ClassVar[str]
    remediation: ClassVar[str]
    flat: ClassVar[bool] = False
    """Whether it has the same form in every toolset, as limits of a plan have (`PLAN_ENVELOPE`)."""

    def __init__(
        self,
        message: str | None = None,
        *,
        remediation: str | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        """headers: of the HTTP answer. retry_after: the seconds after which the same call may succeed."""
        self.naming: Naming = str
        self.message = message or self.summary
        self.remedy = remediation or self.remediation
        self.details = dict(details or {})
        self.headers = dict(headers or {})
        self.retry_after = retry_after
        super().__init__(self.message)

    @property
    def message(self) -> str:
        return name_operations(self._message, self.naming)

    @message.setter
    def message(self, text: str) -> None:
        self._message = text

    @property
    def remedy(self) -> str:
        return name_operations(self._remedy, self.naming)

    @remedy.setter
    def remedy(self, text: str) -> None:
        self._remedy = text


class BadRequest(BaobabError):
    """The caller's input is at fault."""

    code = "VALIDATION_INVALID_INPUT"
    status = 400
    summary = "The request is not valid."
    remediation = "Correct the named field and send the request again."


class MissingField(BadRequest):
    code = "VALIDATION_MISSING_FIELD"
    summary = "A required field is missing."
    remediation = "Add the named field."


class InvalidType(BadRequest):
    code = "VALIDATION_INVALID_TYPE"
    summary = "A field has the wrong type."
    remediation = "Send the named field with the type that the schema says; nothing is converted silently."


class UnknownField(BadRequest):
    code = "VALIDATION_INVALID_SCHEMA"
    summary = "The request has a field that this operation does not know."
    remediation = "Remove the named field, or correct its name."


class MalformedBody(BadRequest):
    code = "VALIDATION_INVALID_SCHEMA"
    summary = "The body is not a JSON object."
    remediation = "Send one JSON object (RFC 8259): no NaN or Infinity, no NUL characters, UTF-8."


class BodyTooLarge(BaobabError):
    code = "REQUEST_TOO_LARGE"
    status = 413
    summary = "The body is larger than this operation takes."
    remediation = "Send less in one request; details.max_bytes is the limit."


class Unauthenticated(BaobabError):
    """No credential, or one that does not count."""

    code = "AUTH_REQUIRED"
    status = 401
    summary = "This operation needs a credential."
    remediation = "Send `Authorization: Bearer <API key or token>`."


class InvalidApiKey(Unauthenticated):
    code = "AUTH_INVALID_API_KEY"
    summary = "The API key is unknown or revoked."
    remediation = "Use a live key; create one with op:api_keys_create."


class InvalidToken(Unauthenticated):
    code = "AUTH_INVALID_TOKEN"
    summary = "The token is not valid."
    remediation = "Sign in again with op:platform_login and send the new token."


class InvalidUserToken(Unauthenticated):
    code = "AUTH_INVALID_END_USER_JWT"
    summary = "The token is not one that this app issued."
    remediation = "Sign the user in to this app and send that token."


class UserTokenExpired(InvalidUserToken):
    code = "AUTH_END_USER_JWT_EXPIRED"
    summary = "The user's token has expired."
    remediation = "Refresh the token with the user's refresh token."


class Forbidden(BaobabError):
    """A known caller that may not do this."""

    code = "AUTH_INSUFFICIENT_PERMISSIONS"
    status = 403
    summary = "This credential may not do that."
    remediation = "Use a credential with the scope or role that the operation names, or ask whoever made this one."


class ImpersonationForbidden(Forbidden):
    code = "AUTH_IMPERSONATION_FORBIDDEN"
    summary = "Only a key of the app itself may act as one of its users."
    remediation = "Send X-Platform-As-User with a key whose key_scope is app, or leave the header out."


class SignupClosed(Forbidden):
    code = "AUTH_FORBIDDEN"
    summary = "This installation does not take new accounts."
    remediation = "Ask the operator for an account, or set BAOBAB_SIGNUP=open."


class OriginRefused(Forbidden):
    code = "AUTH_ORIGIN_REFUSED"
    summary = "Requests from this web origin are not allowed."
    remediation = "Add the origin with op:config_cors."


class KeyLimited(Forbidden):
    code = "AUTH_KEY_LIMITED"
    summary = "This key's limits do not allow this call."
    remediation = "Use a key without this limit, or ask the key's owner to change the key's limits."


class ApprovalRequired(BaobabError):
    """The call waits as a pending approval; `details` name it and where a person decides."""

    code = "APPROVAL_REQUIRED"
    status = 428
    summary = "This call waits for a person's approval; nothing has been done yet."
    remediation = (
        "Ask a person to decide at the address `decide_at`. Then repeat exactly the same call: it answers the result."
    )


class ApprovalRejected(Forbidden):
    code = "APPROVAL_REJECTED"
    summary = "A person rejected this call. Nothing was done."
    remediation = "Do not repeat the same call. Ask the person what they want instead."


class UrlRefused(Forbidden):
    code = "FILE_URL_INVALID"
    summary = "This address was not signed by this server for this file and method."
    remediation = "Use the address exactly as this server returned it."


class UrlExpired(Forbidden):
    code = "FILE_URL_EXPIRED"
    summary = "This address has expired."
    remediation = "Ask for another one, where this one came from."


class NotFound(BaobabError):
    code = "RESOURCE_NOT_FOUND"
    status = 404
    summary = "There is no such thing."
    remediation = "Check the identifier; list the things you may see."


class AppNotFound(NotFound):
    code = "APP_NOT_FOUND"
    summary = "There is no such app."
    remediation = "Check the app id; op:apps_list lists the apps that you may use."


class RouteNotFound(NotFound):
    summary = "No operation has this path."
    remediation = "See /docs or /openapi.json for the paths of this server."


class ToolNotFound(NotFound):
    summary = "There is no tool with this name."
    remediation = "List the tools; names are exact."


class MethodNotAllowed(BaobabError):
    code = "METHOD_NOT_ALLOWED"
    status = 405
    summary = "This path does not take this method."
    remediation = "Use a method that the Allow header names."


class Conflict(BaobabError):
    code = "RESOURCE_CONFLICT"
    status = 409
    summary = "The request conflicts with what is there."
    remediation = "Read the current state and decide again."


class AlreadyExists(Conflict):
    code = "RESOURCE_ALREADY_EXISTS"
    summary = "The name is taken."
    remediation = "Choose another name."


class UpgradeRequired(BaobabError):
    code = "UPGRADE_REQUIRED"
    status = 426
    summary = "This path speaks WebSocket only."
    remediation = "Open it as a WebSocket (ws:// or wss://)."


class WrongHost(BaobabError):
    code = "HOST_REFUSED"
    status = 421
    summary = "This server does not answer for that host."
    remediation = "Use the server's own address; an operator adds names with BAOBAB_BASE_URL or BAOBAB_ALLOWED_HOSTS."


class OnlyFilesHere(WrongHost):
    summary = "This host serves the files of one app, and nothing else."
    remediation = "Use the server's own address."


class RateLimited(BaobabError):
    """Raised with the seconds to wait; Retry-After carries the same."""

    code = "QUOTA_RATE_LIMIT"
    status = 429
    summary = "Too many requests."
    remediation = "Wait for the seconds in Retry-After, then send requests more slowly."

    def __init__(self, retry_after: int, limit: int, window: int) -> None:
        super().__init__(
            f"More than {limit} requests in {window} s.",
            details={"limit": limit, "window_seconds": window, "retry_after": retry_after},
            retry_after=retry_after,
        )


class BusyWithBodies(BaobabError):
    code = "HTTP_BODIES_IN_FLIGHT"
    status = 503
    summary = "The server is reading as many bytes of request bodies as it can at once."
    remediation = "Wait for the seconds in Retry-After and try again, with a smaller body or fewer at once."

    def __init__(self) -> None:
        super().__init__(headers={"connection": "close"}, retry_after=2)


class NoSocket(BaobabError):
    code = "HTTP_NO_WEBSOCKET"
    status = 400
    summary = "There is no WebSocket at this path."
    remediation = (
        "Send an ordinary request. docs/agents.md names the path at which you can follow a run over a WebSocket."
    )


class TooManyStreams(BaobabError):
    code = "STREAMS_EXHAUSTED"
    status = 429
    summary = "No more streams can be opened now."
    remediation = "Close one of details.limit open streams, or ask for what is new from time to time instead."


class Internal(BaobabError):
    code = "INTERNAL_ERROR"
    status = 500
    summary = "Something went wrong on our side."
    remediation = "Try again. If it happens again, report the request id to the operator."


class Damaged(Internal):
    code = "STORE_DAMAGED"
    summary = "The files of a store are damaged: it cannot read what it has written."
    remediation = "Tell the operator, who must restore them from a backup; trying again does not help."


class PrivilegeMissing(Internal):
    code = "STORE_PRIVILEGE_MISSING"
    summary = "The server's database user lacks a privilege that it needs."
    remediation = "Tell the operator, who must grant what the log of the server names; trying again does not help."


class Unavailable(BaobabError):
    code = "SERVICE_UNAVAILABLE"
    status = 503
    summary = "A store does not answer at the moment."
    remediation = "Try again in a few seconds. Before you repeat a write, read whether it was made."

    def __init__(self, message: str | None = None, *, retry_after: float = 2) -> None:
        super().__init__(message, retry_after=retry_after)


class AppPaused(BaobabError):
    code = "APP_PAUSED"
    status = 503
    summary = "The app is paused."
    remediation = "Wait until those who run the app resume it, with op:config_pause."

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(details={"paused_reason": reason}, retry_after=60)


class AppMigrating(Unavailable):
    code = "app_migrating"
    summary = "The app is being moved to another region. Until it has arrived, its data can be read but not written."
    remediation = "Try again in a few seconds; op:moves_active shows the progress."

    def __init__(self) -> None:
        super().__init__()
        self.retry_after = 5
