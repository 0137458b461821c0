"""The errors of sign-in, and their envelope."""

from typing import Any

from baobab.tools.core import (
    AppNotFound,
    BadRequest,
    BaobabError,
    Conflict,
    Forbidden,
    NotFound,
    RateLimited,
    Unauthenticated,
)
from baobab.tools.core.auth.passwords import WeakPassword
from baobab.tools.core.envelopes import STRUCTURED, Envelope, Schema
from baobab.tools.core.errors import AlreadyExists, InvalidUserToken

_INVALID_BODY, _WEAK_PASSWORD = "Invalid request body", "Password does not meet requirements"
_NO_APP = "App not found"


class AuthEnvelope(Envelope):
    """`{error, code, remediation, details?}`: `error` is the contract's text. A full bucket is worded as everywhere."""

    name = "AuthError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        if isinstance(error, RateLimited):
            return STRUCTURED.render(error, docs)
        text, remedy = error.message, error.remedy
        details: Any = error.details
        if isinstance(error, WeakPassword):
            text, details = _WEAK_PASSWORD, error.details["rules"]
            remedy = remedy.replace("details.rules", "details")
        elif isinstance(error, AppNotFound):
            text = _NO_APP
        elif isinstance(error, BadRequest) and "fields" in error.details:
            text = _INVALID_BODY
            details = [{"path": each["field"], "message": each["problem"]} for each in error.details["fields"]]
        body: dict[str, Any] = {"error": text, "code": self.code(type(error)), "remediation": remedy}
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
    remediation = "Sign the user in again; each refresh token works once."


class WrongCode(BadRequest):
    code = "AUTH_INVALID_CODE"
    summary = "Invalid code"
    remediation = "Send the newest code that was mailed to this address; after five wrong tries ask for another one."


class CodeUsed(WrongCode):
    code = "AUTH_CODE_USED"
    summary = "Code already used"
    remediation = "Ask for another code; each works once."


class CodeExpired(WrongCode):
    code = "AUTH_CODE_EXPIRED"
    summary = "Code expired"
    remediation = "Ask for another code."


class ChallengeOver(Unauthenticated):
    code = "AUTH_CHALLENGE_OVER"
    summary = "This sign-in has ended: it was completed, or it took longer than ten minutes."
    remediation = "Sign in again from the start."


class WrongFactorCode(BadRequest):
    code = "AUTH_INVALID_SECOND_FACTOR"
    summary = "Invalid code"
    remediation = "Send the current code of the authenticator app, which works once, or an unused recovery code."


class FactorExists(AlreadyExists):
    summary = "The user has an authenticator app already."
    remediation = "Remove it first with op:auth_totp_remove."


class FactorNotFound(NotFound):
    summary = "The user has no authenticator app set up."
    remediation = "Begin with op:auth_totp_enrol."


class SignInTooOld(Forbidden):
    code = "AUTH_SIGN_IN_AGAIN"
    summary = "This sign-in is too old to change how the user signs in."
    remediation = "Sign the user in again and repeat the call within 15 minutes."


class PasskeyNotFound(NotFound):
    summary = "The user has no such passkey."
    remediation = "List the passkeys with op:auth_passkeys."


class PasskeyExists(AlreadyExists):
    summary = "The app has this passkey already."
    remediation = "Sign in with it; a passkey belongs to one user."


class TooManyPasskeys(Conflict):
    summary = "The user has reached the limit of passkeys."
    remediation = "Remove one first, with op:auth_passkey_delete."


class WrongUserPassword(Forbidden):
    summary = "`current_password` is not this user's password."
    remediation = "Send the user's current password as `current_password`, or use op:auth_forgot_password."


class ProviderNotFound(NotFound):
    summary = "The app has no such sign-in provider, or it is switched off."
    remediation = "List the providers with op:users_providers_list; add one with op:users_providers_create."


class ProviderIncomplete(BadRequest):
    code = "VALIDATION_MISSING_FIELD"
    summary = "The provider needs more than was sent."
    remediation = "Send what the message names."


class RedirectRefused(BadRequest):
    code = "AUTH_REDIRECT_REFUSED"
    summary = "The app does not allow this `redirect_to`."
    remediation = "Add its origin with op:config_cors; addresses on this machine need no entry."


class OAuthFailed(BadRequest):
    code = "AUTH_OAUTH_FAILED"
    summary = "OAuth error: the provider did not sign the user in."
    remediation = "Start the sign-in again. If it fails again, check the provider's settings and its log."


class AddressInUse(Conflict):
    code = "oauth_identity_already_linked"
    summary = "A user of the app has this e-mail address, and not both sides have verified it."
    remediation = "Sign in as that user by password or mailed code, verify the address, and try again."


class AnonymousClosed(Forbidden):
    code = "AUTH_ANONYMOUS_DISABLED"
    summary = "This app does not allow anonymous sign-in."
    remediation = "Sign up with op:auth_signup, or let the app allow it with op:users_settings_update."


class SignUpClosed(Forbidden):
    code = "AUTH_INVITE_ONLY"
    summary = "Only people who are invited can join this app."
    remediation = "Ask whoever runs the app for an invitation (op:users_invite)."


class InvitationNotFound(NotFound):
    summary = "The app has no such invitation."
    remediation = "List them with op:users_invitations_list."


class NotAnonymous(Conflict):
    summary = "This user has an address already."
    remediation = "Only an anonymous user can be upgraded. Nothing is left to do."


class UserNotFound(NotFound):
    summary = "The app has no such user."
    remediation = "List the users with op:users_list."


class SessionNotFound(NotFound):
    summary = "The user has no such session."
    remediation = "List the sessions with op:auth_sessions. Sessions that have ended are not listed."
