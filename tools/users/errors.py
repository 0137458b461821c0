"""The errors of sign-in, and their envelope (document 4, A2 and B3)."""

from typing import Any

from baobab.tools.core.auth.passwords import WeakPassword
from baobab.tools.core.envelopes import STRUCTURED, Envelope, Schema
from baobab.tools.core.errors import (
    AlreadyExists,
    BadRequest,
    BaobabError,
    Forbidden,
    InvalidUserToken,
    NotFound,
    RateLimited,
    Unauthenticated,
)

_INVALID_BODY, _WEAK_PASSWORD = "Invalid request body", "Password does not meet requirements"


class AuthEnvelope(Envelope):
    """`{error, code, remediation, details?}`: `error` is the contract's text. A full bucket is worded as everywhere."""

    name = "AuthError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        if isinstance(error, RateLimited):
            return STRUCTURED.render(error, docs)
        text = error.message
        details: Any = error.details
        if isinstance(error, WeakPassword):
            text, details = _WEAK_PASSWORD, error.details["rules"]
        elif isinstance(error, BadRequest) and "fields" in error.details:
            text = _INVALID_BODY
            details = [{"path": each["field"], "message": each["problem"]} for each in error.details["fields"]]
        body: dict[str, Any] = {"error": text, "code": self.code(type(error)), "remediation": error.remedy}
        return {**body, "details": details} if details else body

    def schema(self) -> Schema:
        text = {"type": "string"}
        details = {"anyOf": [{"type": "array"}, {"type": "object"}]}
        properties = {"error": text, "code": text, "remediation": text, "details": details}
        flat = {"type": "object", "properties": properties, "required": ["error", "code", "remediation"]}
        return {"anyOf": [flat, STRUCTURED.schema()]}


ENVELOPE = AuthEnvelope()


class UserExists(AlreadyExists):
    summary = "User already exists"
    remediation = "Sign in with op:auth_login, or set a new password with op:auth_forgot_password."


class WrongCredentials(Unauthenticated):
    code = "AUTH_INVALID_CREDENTIALS"
    summary = "Invalid credentials"
    remediation = "Check the e-mail address and the password; the answer does not say which of them is wrong."


class UserBanned(Forbidden):
    code = "AUTH_USER_BANNED"
    summary = "This user may not sign in to the app."
    remediation = "Ask whoever runs the app; they can end the ban with op:users_update."


class WrongRefreshToken(InvalidUserToken):
    summary = "Invalid or expired refresh token"
    remediation = "Sign the user in again; each refresh token is good for one exchange."


class WrongCode(BadRequest):
    code = "AUTH_INVALID_CODE"
    summary = "Invalid code"
    remediation = "Send the newest code that was mailed to this address; after five wrong tries ask for another one."


class CodeUsed(WrongCode):
    code = "AUTH_CODE_USED"
    summary = "Code already used"
    remediation = "Ask for another code; each is good for one use."


class CodeExpired(WrongCode):
    code = "AUTH_CODE_EXPIRED"
    summary = "Code expired"
    remediation = "Ask for another code."


class WrongUserPassword(Forbidden):
    summary = "`current_password` is not this user's password."
    remediation = "Send the user's present password as `current_password`, or use op:auth_forgot_password."


class UserNotFound(NotFound):
    summary = "The app has no such user."
    remediation = "List the users with op:users_list."


class SessionNotFound(NotFound):
    summary = "The user has no such session."
    remediation = "List the sessions first; one that has ended is not among them."
