"""Mail: written in the transaction of what asks for it, delivered over SMTP or kept in the outbox."""

from baobab.tools.mail import jobs
from baobab.tools.mail.tools import outbox, send, settings
from baobab.tools.mail.toolset import mail

TOOLSETS = (mail,)
MODULES = (outbox, send, settings, jobs)
