"""The errors of accounts and sessions."""

from baobab.tools.core import BadRequest, Conflict, Forbidden, NotFound, Unauthenticated
from baobab.tools.core.errors import AlreadyExists, InvalidToken


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


class AccountLinkSpent(BadRequest):
    code = "AUTH_LINK_SPENT"
    summary = "This link was used before, or has expired."
    remediation = "Ask for another one with op:platform_forgot_password or op:platform_change_email."


class NoMailServer(Conflict):
    code = "STATE_PREREQUISITE_MISSING"
    summary = "This installation sends no mail, so the new address cannot be confirmed."
    remediation = "Whoever operates it sets BAOBAB_SMTP_URL; until then the address stays."


class FirstAccountStays(Conflict):
    code = "STATE_INVALID_TRANSITION"
    summary = "The installation's first account operates it, and is not deleted."
    remediation = "Change its name, address or password instead."


class AccountHasApps(Conflict):
    code = "STATE_PREREQUISITE_MISSING"
    summary = "Your own organisation still has apps."
    remediation = (
        "Look which apps it has (op:apps_list), and keep the account while anybody needs one. Apps that nobody needs "
        "are deleted first (op:apps_delete), then the account."
    )


class AccountOwnsOrganisations(Conflict):
    code = "STATE_PREREQUISITE_MISSING"
    summary = "You are the only owner of an organisation."
    remediation = "Make another member an owner there (op:organisations_set_role), or delete the organisation."
