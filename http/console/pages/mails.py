"""/console/apps/{app}/mails: the mails to an app's users. They are kept here while no mail server is set up."""

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Page
from baobab.http.console.visit import Visit

_SHOWN = 50


async def show_mails(visit: Visit) -> Context:
    app = await read_app(visit)
    cursor = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    return {"app": app, **await visit.call("mail_outbox_list", app_id=app["id"], limit=_SHOWN, **cursor)}


async def show_mail(visit: Visit) -> Context:
    app = await read_app(visit)
    mail = await visit.call("mail_outbox_get", app_id=app["id"], mail_id=visit.parts["mail"])
    return {"app": app, "title": mail["mail"]["subject"], "mail": mail["mail"]}


PAGES = (
    Page(
        "/apps/{app}/mails",
        "Mails",
        "mails.html",
        show_mails,
        tab="Mails",
        tool="mail_outbox_list",
        group="People",
        icon="mail",
        rank=30,
    ),
    Page("/apps/{app}/mails/{mail}", "Mail", "mail.html", show_mail),
)
