"""The tool that lists conversations; deletion.py erases them."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from sqlalchemy import select, tuple_

from baobab.runtime.agents.tables import threads
from baobab.tools.agents.agent_rows import get_agent_row
from baobab.tools.agents.errors import AgentNotFound, NotYourRun
from baobab.tools.agents.fields import UserId
from baobab.tools.agents.redaction import is_outsider
from baobab.tools.agents.run_ownership import conversation_owner, is_agent_available, resolve_person
from baobab.tools.agents.schemas.agents import Name, Threads
from baobab.tools.agents.toolset import agents
from baobab.tools.core import AppId, Call, Cursor, decode_cursor, encode_cursor
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.pagination import CursorInvalid

_LIST = "agent threads"


@agents.tool(
    "GET /agents/{name}/threads",
    access=OF_APP,
    effect="read",
    raises=(AgentNotFound, NotYourRun, CursorInvalid),
)
async def agents_threads_list(
    call: Call,
    app_id: AppId,
    name: Name,
    user_id: UserId | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
    cursor: Cursor | None = None,
) -> Threads:
    """List a person's conversations with an agent that remembers them, the latest first.

    user_id: the user whose conversations they are, or a visitor's `visitor_id`, for those who run the app; by default,
        the caller's own.
    limit: how many conversations at most.
    """
    agent = await get_agent_row(call, app_id, name)
    if not is_agent_available(agent.visibility, call.caller):
        raise NotYourRun
    if user_id is not None and is_outsider(call.caller):
        raise NotYourRun("Only those who run the app can list the conversations of others.")
    person = conversation_owner(call.caller) if user_id is None else resolve_person(user_id)
    columns = threads.c
    query = select(columns.id, columns.name, columns.last_position, columns.created_at, columns.updated_at).where(
        columns.app_id == app_id, columns.agent_id == agent.id, columns.person == person
    )
    vault = call.services.vault
    if cursor is not None:
        at, last_id = decode_cursor(vault, _LIST, cursor)
        query = query.where(tuple_(columns.updated_at, columns.id) < (datetime.fromisoformat(at), last_id))
    query = query.order_by(columns.updated_at.desc(), columns.id.desc()).limit(limit + 1)
    rows = list((await call.read(query)).all())
    answer: Threads = {
        "threads": [
            {
                "thread_id": row.name,
                "messages": row.last_position,
                "created_at": row.created_at,
                "updated_at": row.updated_at,
            }
            for row in rows[:limit]
        ]
    }
    if len(rows) > limit:
        last = rows[limit - 1]
        answer["next_cursor"] = encode_cursor(vault, _LIST, last.updated_at.isoformat(), last.id)
    return answer
