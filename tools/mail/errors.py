"""The errors of mail."""

from baobab.tools.core.errors import BadRequest, NotFound


class MailNotFound(NotFound):
    summary = "The app has no such mail."
    remediation = "List the mails with op:mail_outbox_list; they are kept for 30 days."


class NoMailServer(BadRequest):
    code = "AUTH_NO_MAIL_SERVER"
    summary = "Neither the app nor the installation has a mail server: mails stay in the outbox."
    remediation = "Set `smtp` with op:mail_settings_update, or have the operator set BAOBAB_SMTP_URL."
