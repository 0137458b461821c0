"""The errors of accounts and sessions."""

from baobab.tools.core.errors import AlreadyExists, Forbidden, InvalidToken, NotFound, Unauthenticated


class InvalidCredentials(Unauthenticated):
    code = "AUTH_INVALID_CREDENTIALS"
    summary = "Invalid credentials."
    remediation = "Check the e-mail address and the password; the answer does not say which of them is wrong."


class InvalidRefreshToken(InvalidToken):
    summary = "Invalid or expired refresh token."
    remediation = "Sign in again with op:platform_login; use each refresh token once."


class EmailTaken(AlreadyExists):
    summary = "An account with this e-mail address exists already."
    remediation = "Sign in with op:platform_login, or use another address."


class WrongPassword(Forbidden):
    summary = "`current_password` is not this account's password."
    remediation = "Send the account's current password as `current_password`."


class NoAccountYet(NotFound):
    summary = "There is no account yet."
    remediation = "Make the first one with `baobab init`, or start the server once."
