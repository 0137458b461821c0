"""The errors of mail."""

from baobab.tools.core import Conflict, NotFound


class MailNotFound(NotFound):
    summary = "The app has no such mail."
    remediation = "List the mails with op:mail_outbox_list; they are kept for 30 days."


class RecipientRefused(Conflict):
    code = "MAIL_RECIPIENT_REFUSED"
    summary = "The app does not know this recipient, so it sends no mail there."
    remediation = (
        "Mail a user of the app or a member of its organisation who has confirmed the address. An admin can list "
        "further addresses and domains as `recipients` with op:mail_settings_update."
    )


class MailNotSetUp(Conflict):
    code = "MAIL_NOT_SET_UP"
    summary = "Neither the app nor the installation has a mail server, so nobody would get the mail."
    remediation = "Give the app a server with op:mail_settings_update, or have the operator set BAOBAB_SMTP_URL."


class MailKeyReused(Conflict):
    code = "MAIL_KEY_REUSED"
    summary = "Another mail was sent with this idempotency key."
    remediation = "Use a new key for a new mail."
