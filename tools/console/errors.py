"""The errors of the console's sessions."""

from baobab.tools.core import BadRequest, Conflict, Forbidden, NotFound, Unauthenticated


class ConsoleSignedOut(Unauthenticated):
    code = "CONSOLE_SIGNED_OUT"
    summary = "Nobody is signed in to the console, or the session has ended."
    remediation = "Sign in at /console/sign-in; the page that you were on opens again."


class ConsoleLinkSpent(Unauthenticated):
    code = "CONSOLE_LINK_SPENT"
    summary = "This link has been used, or has expired."
    remediation = "Restart the server to get a new link, or sign in with a password or an API key."


class ConsoleSignInUnclear(BadRequest):
    code = "CONSOLE_SIGN_IN_UNCLEAR"
    summary = "A sign-in needs an e-mail address with its password, an API key, or a link."
    remediation = "Send exactly one of them."


class ConsoleSignInTooOld(Forbidden):
    code = "CONSOLE_SIGN_IN_AGAIN"
    summary = "This sign-in is too old to change how the account signs in."
    remediation = "Sign in to the console again, and repeat this within 15 minutes."


class ConsoleSessionNotFound(NotFound):
    code = "CONSOLE_SESSION_NOT_FOUND"
    summary = "There is no such session of this account."
    remediation = "op:console_sessions_list lists the active sessions."


class AccountPasskeyNotFound(NotFound):
    code = "CONSOLE_PASSKEY_NOT_FOUND"
    summary = "There is no such passkey of this account."
    remediation = "The console's page of sessions lists the account's passkeys."


class AccountPasskeysFull(Conflict):
    code = "CONSOLE_PASSKEYS_FULL"
    summary = "The account has reached its limit of passkeys, or already has this one."
    remediation = "Remove one on the console's page of sessions."
