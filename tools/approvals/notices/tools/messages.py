"""/v1/notices/messages: what a person was told."""

from typing import cast

from sqlalchemy import select

from baobab.tools.approvals.notices.rows import account_of
from baobab.tools.approvals.notices.schemas import NoticeMessage, NoticeMessages
from baobab.tools.approvals.notices.tables import notice_messages
from baobab.tools.approvals.notices.toolset import GUARD, PERSON, notices
from baobab.tools.core import Call, PageSize


@notices.tool("GET /messages", access=PERSON, effect="read", guard=GUARD)
async def notices_messages_list(call: Call, limit: PageSize = 50) -> NoticeMessages:
    """List the last messages to the channels of this account with their results, newest first."""
    own_query = select(notice_messages).where(notice_messages.c.account_id == account_of(call))
    order = (notice_messages.c.created_at.desc(), notice_messages.c.id.desc())
    rows = await call.execute(own_query.order_by(*order).limit(limit))
    messages = [
        cast(NoticeMessage, {name: getattr(row, name) for name in NoticeMessage.__annotations__}) for row in rows
    ]
    return {"messages": messages}
