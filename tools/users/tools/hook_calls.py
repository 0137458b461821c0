"""Lists what the post-auth hook of an app would receive."""

from typing import cast

from sqlalchemy import select

from baobab.tools.core import AppId, AppOwner, Call, PageSize
from baobab.tools.users.schemas import HookCall, HookCalls
from baobab.tools.users.tables import user_hook_calls
from baobab.tools.users.toolset import users

_columns = user_hook_calls.c


@users.tool(
    "GET /auth/hook-calls",
    access=AppOwner(),
    effect="read",
    taints=True,
)
async def users_hook_calls(call: Call, app_id: AppId, limit: PageSize = 100) -> HookCalls:
    """List what the app's post-auth hook receives about sign-ins and sign-ups, newest first, for a week."""
    query = select(user_hook_calls).where(_columns.app_id == app_id)
    query = query.order_by(_columns.created_at.desc(), _columns.id).limit(limit)
    async with call.reading() as execute:
        rows = (await execute(query)).mappings().all()
    hook_calls = [cast(HookCall, {name: row[name] for name in HookCall.__annotations__}) for row in rows]
    return {"calls": hook_calls}
