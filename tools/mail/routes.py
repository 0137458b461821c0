"""Which server takes an app's mail, and in whose name it goes out."""

from dataclasses import dataclass
from typing import Any

from baobab.runtime.net.egress import Egress
from baobab.runtime.net.smtp import Dial, SmtpServer
from baobab.storage.secrets import Vault
from baobab.tools.core import Services
from baobab.tools.mail.mailer import OutboxMailer
from baobab.tools.mail.tables import mail_settings


@dataclass(frozen=True, slots=True)
class Route:
    """A server that takes mail, and the address that the mail comes from.

    dial: how the server of an app's owner is reached, which may be no private address; None for the operator's server.
    """

    server: SmtpServer
    sender: str
    reply_to: str | None
    dial: Dial | None = None


def find_route(services: Services, settings: Any) -> Route | None:
    """Chooses the app's own server, or else the installation's; None if there is neither.

    settings: the row of the app's mail settings, or None. Raises InstallationIsCopy in a copy, which sends no mail.
    """
    services.liveness.require_live()
    mailer, http_client = services.mailer, services.http_client
    assert isinstance(mailer, OutboxMailer)
    reply_to = None if settings is None else settings.reply_to
    if settings is not None and settings.smtp_host is not None:
        assert isinstance(http_client, Egress)
        implicit = settings.smtp_tls == "tls"
        password = settings.smtp_password and open_password(services.vault, settings)
        server = SmtpServer(
            settings.smtp_host, settings.smtp_port, implicit, not implicit, settings.smtp_username, password
        )
        return Route(server, settings.smtp_from, reply_to, http_client.dial)
    if mailer.postbox.server is None:
        return None
    # The address is the operator's: an app must not write in the name of others through the operator's server.
    return Route(mailer.postbox.server, mailer.postbox.sender, reply_to)


def seal_password(vault: Vault, app_id: str, password: str) -> str:
    return vault.seal(password.encode(), _password_context(app_id))


def open_password(vault: Vault, settings: Any) -> str:
    return vault.open(settings.smtp_password, _password_context(settings.app_id)).decode()


def _password_context(app_id: str) -> str:
    return f"{mail_settings.name}.smtp_password:{app_id}"
