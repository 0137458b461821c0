"""A mail as it goes over the wire."""

from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage

from baobab.runtime.net.smtp import MailRefused
from baobab.tools.mail.rendering import RenderedMail
from baobab.tools.mail.routes import Route


def compose_message(
    route: Route, sender_name: str, to: str, mail: RenderedMail, mail_id: str, created_at: datetime
) -> EmailMessage:
    """Composes a mail. The same id makes the same Message-ID. Raises MailRefused for what no header can hold."""
    message = EmailMessage()
    user, _, domain = route.sender.rpartition("@")
    try:
        message["From"] = Address(sender_name, user, domain)
        message["To"] = to
        if route.reply_to is not None:
            message["Reply-To"] = route.reply_to
        message["Subject"] = mail.subject
        message["Date"] = created_at
        message["Message-ID"] = f"<{mail_id}@{domain}>"
    except ValueError as exc:
        raise MailRefused(f"the mail cannot be written: {exc}") from exc
    # So that no automatic reply answers it.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    message.add_alternative(mail.html, subtype="html")
    return message
