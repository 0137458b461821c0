"""The errors of mail."""

from baobab.tools.core.errors import NotFound


class MailNotFound(NotFound):
    summary = "The app has no such mail."
    remediation = "List the mails with op:mail_outbox_list; they are kept for 30 days."
