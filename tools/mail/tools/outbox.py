"""/v1/{app_id}/auth/outbox: the mails that an app's users get."""

from datetime import datetime
from typing import Any

from sqlalchemy import and_, or_, select

from baobab.tools.core import AppId, AppOwner, Call, Cursor, Guard, PageSize, Uuid, decode_cursor, encode_cursor
from baobab.tools.core.list_totals import count_list
from baobab.tools.mail.errors import MailNotFound
from baobab.tools.mail.jobs import open_text
from baobab.tools.mail.schemas import OneMail, Outbox, OutboxMail
from baobab.tools.mail.tables import mails
from baobab.tools.mail.toolset import mail

# A reader of a code can sign in as the user to whom it was mailed, so keys with limits may not read it.
_GUARD = Guard(grants=True)


@mail.tool(
    "GET /outbox",
    access=AppOwner("admin"),
    effect="read",
    taints=True,
    guard=_GUARD,
)
async def mail_outbox_list(call: Call, app_id: AppId, limit: PageSize = 50, cursor: Cursor | None = None) -> Outbox:
    """List the mails to the users of an app, the newest first.

    While no SMTP server is set (`BAOBAB_SMTP_URL`), this is where the sign-in codes are read.
    """
    of = f"outbox:{app_id}"
    query = select(mails).where(mails.c.app_id == app_id).order_by(mails.c.created_at.desc(), mails.c.id.desc())
    whole_query = query
    if cursor is not None:
        at, last = decode_cursor(call.services.vault, of, cursor)
        moment = datetime.fromisoformat(at)
        is_earlier = or_(mails.c.created_at < moment, and_(mails.c.created_at == moment, mails.c.id < last))
        query = query.where(is_earlier)
    async with call.reading() as execute:
        rows = (await execute(query.limit(limit + 1))).all()
        await count_list(call, execute, whole_query, is_all=cursor is None and len(rows) <= limit)
    page, following = rows[:limit], None
    if len(rows) > limit:
        following = encode_cursor(call.services.vault, of, page[-1].created_at.isoformat(), page[-1].id)
    return {"mails": [_describe(call, row) for row in page], "next_cursor": following}


@mail.tool(
    "GET /outbox/{mail_id}",
    access=AppOwner("admin"),
    effect="read",
    taints=True,
    raises=(MailNotFound,),
    guard=_GUARD,
)
async def mail_outbox_get(call: Call, app_id: AppId, mail_id: Uuid) -> OneMail:
    """Read one mail to a user of an app, with its HTML.

    mail_id: the mail, by the `id` of op:mail_outbox_list.
    """
    async with call.reading() as execute:
        row = (await execute(select(mails).where(mails.c.app_id == app_id, mails.c.id == mail_id))).first()
    if row is None:
        raise MailNotFound
    html = None if row.status == "sent" else open_text(call.services.vault, row, "html")
    return {"mail": {**_describe(call, row), "html": html}}


def _describe(call: Call, row: Any) -> OutboxMail:
    return {
        "id": row.id,
        "to": row.to_address,
        "subject": row.subject,
        "template": row.template,
        "status": row.status,
        "error": row.error,
        "text": None if row.status == "sent" else open_text(call.services.vault, row, "text"),
        "created_at": row.created_at,
        "sent_at": row.sent_at,
        "expires_at": row.expires_at,
    }
