"""/v1/{app_id}/auth/mail: how an app's mail looks, which server takes it, and a mail that tries it."""

from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.net.addresses import DENIED_PORTS, AddressRefused, UrlRefused
from baobab.runtime.net.egress import Egress
from baobab.runtime.net.smtp import MailDelayed, MailRefused, send_message
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import (
    OMITTED,
    AppId,
    AppMigrating,
    AppOwner,
    Audit,
    BadRequest,
    Call,
    Email,
    Guard,
    NameText,
    Rest,
    Text,
)
from baobab.tools.core.errors import MissingField
from baobab.tools.core.guard.widening import whatever_is_said
from baobab.tools.core.limits.limits import PerOrganisation
from baobab.tools.mail.mailer import find_settings
from baobab.tools.mail.message import compose_message
from baobab.tools.mail.recipients import ListedRecipients
from baobab.tools.mail.rendering import render_mail
from baobab.tools.mail.routes import find_route, seal_password
from baobab.tools.mail.schemas import ADDRESS, KnownMailServer, MailServer, MailSettings, MailTried, OneMailSettings
from baobab.tools.mail.tables import FREEZES, mail_settings
from baobab.tools.mail.toolset import mail

_MAIL_PORTS = frozenset((25, 465, 587))

SenderName = Annotated[str, NameText(100, min_length=1)]
ReplyTo = Annotated[str, Text(250, pattern=ADDRESS), Field(examples=["help@example.com"])]
Colour = Annotated[str, Text(7, pattern="^#[0-9a-fA-F]{6}$"), Field(examples=["#1d4ed8"])]


@mail.tool(
    "GET /mail",
    access=AppOwner("admin"),
    effect="read",
)
async def mail_settings_get(call: Call, app_id: AppId) -> OneMailSettings:
    """Read how the mail of an app looks and which server takes it. The server's password is never shown."""
    async with call.reading() as execute:
        row = await find_settings(execute, app_id)
    return {"mail": _describe(row)}


@mail.tool(
    "PATCH /mail",
    access=AppOwner("admin"),
    effect="write",
    raises=(MissingField, AddressRefused, UrlRefused),
    audit=Audit("auth.mail.update", category="auth", resource="mail_settings"),
    rest=Rest(examples={"from_name": "Acme", "reply_to": "help@example.com"}),
    # A person who chooses the server can read every code that is mailed to the app's users.
    guard=Guard(widens={"smtp": whatever_is_said, "recipients": bool}),
)
async def mail_settings_update(
    call: Call,
    app_id: AppId,
    from_name: SenderName | None = OMITTED,
    reply_to: ReplyTo | None = OMITTED,
    colour: Colour | None = OMITTED,
    smtp: MailServer | None = OMITTED,
    recipients: ListedRecipients = OMITTED,
) -> OneMailSettings:
    """Change how the mail of an app looks, or which server takes it; what is left out stays.

    from_name: the name that mails come from; null for the app's name.
    reply_to: the address that answers go to; null for none.
    colour: of the code and the button in the HTML, such as `#1d4ed8`; null for black.
    smtp: a mail server of the app's own, always as a whole, with its password; null for the installation's. Private
      addresses are refused unless the operator allows them.
    recipients: addresses and domains that op:mail_send may mail beside the app's users and the organisation's members.
    """
    new_values = {"from_name": from_name, "reply_to": reply_to, "colour": colour, "recipients": recipients}
    changes: dict[str, Any] = {name: value for name, value in new_values.items() if value is not OMITTED}
    if smtp is not OMITTED:
        changes |= _store_server(call, app_id, smtp)
    if not changes:
        raise MissingField(
            "Nothing to change.", remediation="Send `from_name`, `reply_to`, `colour`, `smtp` or `recipients`."
        )
    changes["updated_at"] = call.now
    async with FREEZES.writing(call) as unit:
        saving = build_upsert(unit.database.dialect, mail_settings).values(app_id=app_id, **changes)
        await unit.execute(saving.on_conflict_do_update(index_elements=["app_id"], set_=changes))
        row = await find_settings(unit.execute, app_id)
    return {"mail": _describe(row)}


@mail.tool(
    "POST /mail/test",
    access=AppOwner("admin"),
    effect="external",
    limit=PerOrganisation(20, 3600),
    raises=(AppMigrating,),
    audit=Audit("auth.mail.test", category="auth", resource="mail_settings"),
    rest=Rest(examples={"to": "ada@example.com"}),
)
async def mail_test(call: Call, app_id: AppId, to: Email) -> MailTried:
    """Send a test mail now, and return what the mail server answers. It is tried once and not kept in the outbox.

    to: who gets the mail.
    """
    async with call.reading() as execute:
        settings = await find_settings(execute, app_id)
    route = find_route(call.services, settings)
    if route is None:
        answer = "Neither the app nor the installation has a mail server: mails stay in the outbox."
        return {"delivered": False, "server": None, "answer": answer}
    if not call.is_nested:
        # No transaction stays open while another server works.
        await call.unit.commit()
    name = call.require_app().title if settings is None or settings.from_name is None else settings.from_name
    rendered_mail = render_mail("test", name, {}, None if settings is None else settings.colour)
    mail_id, place = call.services.ids.uuid(), f"{route.server.host}:{route.server.port}"
    try:
        message = compose_message(route, name, to, rendered_mail, mail_id, call.now)
        answer = await send_message(route.server, message, route.dial)
    except (MailRefused, MailDelayed) as exc:
        return {"delivered": False, "server": place, "answer": str(exc)}
    return {"delivered": True, "server": place, "answer": answer}


def _store_server(call: Call, app_id: str, smtp: MailServer | None) -> dict[str, Any]:
    """Returns the columns of a server. Raises AddressRefused, UrlRefused and BadRequest."""
    if smtp is None:
        return dict.fromkeys(f"smtp_{name}" for name in ("host", "port", "tls", "from", "username", "password"))
    http_client = call.services.http_client
    assert isinstance(http_client, Egress)
    # A literal IP address is checked now, a host name each time it is called.
    http_client.check_url(f"https://{smtp['host']}")
    tls = smtp.get("tls", "starttls")
    port = smtp.get("port", 465 if tls == "tls" else 587)
    if port in DENIED_PORTS - _MAIL_PORTS:
        raise BadRequest(f"Port {port} is not a mail server's.", remediation="Use 587, 465 or 25.")
    username, password = smtp.get("username"), smtp.get("password")
    if (username is None) != (password is None):
        raise MissingField("`username` and `password` go together.", remediation="Send both, or neither.")
    sealed_password = None if password is None else seal_password(call.services.vault, app_id, password)
    return {
        "smtp_host": smtp["host"].lower(),
        "smtp_port": port,
        "smtp_tls": tls,
        "smtp_from": smtp["from_address"],
        "smtp_username": username,
        "smtp_password": sealed_password,
    }


def _describe(row: Any) -> MailSettings:
    if row is None:
        return {"from_name": None, "reply_to": None, "colour": None, "recipients": [], "smtp": None}
    server: KnownMailServer | None = None
    if row.smtp_host is not None:
        server = {
            "host": row.smtp_host,
            "port": row.smtp_port,
            "tls": row.smtp_tls,
            "from_address": row.smtp_from,
            "username": row.smtp_username,
            "password_set": row.smtp_password is not None,
        }
    return {
        "from_name": row.from_name,
        "reply_to": row.reply_to,
        "colour": row.colour,
        "recipients": row.recipients or [],
        "smtp": server,
    }
