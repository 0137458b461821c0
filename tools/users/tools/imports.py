"""Import of users from another system, with the passwords that they have there."""

from typing import Annotated, Any, Literal

from pydantic import Field

from baobab.runtime.passwords import find_hash_problem
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.users.admission import require_user_room
from baobab.tools.users.rows import build_user
from baobab.tools.users.schemas import Imported, ImportedLine, ImportedUser
from baobab.tools.users.tables import FREEZES
from baobab.tools.users.tables import users as rows
from baobab.tools.users.toolset import users

MOST_USERS = 1000
_IN_ONE_STATEMENT = 200


@users.tool(
    "POST /admin/auth/users/import",
    access=AppOwner("admin"),
    effect="write",
    raises=(PlanLimitReached,),
    audit=Audit("auth.user.import", category="auth", action="create", resource="user"),
    rest=Rest(examples={"users": [{"email": "ada@example.com", "email_verified": True, "display_name": "Ada"}]}),
    guard=Guard(grants=True),
)
async def users_import(
    call: Call,
    app_id: AppId,
    users: Annotated[list[ImportedUser], Field(min_length=1, max_length=MOST_USERS)],
) -> Imported:
    """Add users of another system to an app. They keep their passwords, which are hashed again when they first sign in.

    Sent again, it changes nothing. No mail is sent.

    users: at most a thousand; a user with a hash that cannot be taken is left out, and the others are added.
    """
    results: list[ImportedLine] = []
    rows_by_email: dict[str, dict[str, Any]] = {}
    for user in users:
        problem = find_hash_problem(user["password_hash"]) if "password_hash" in user else None
        if problem is None and user.get("created_at", call.now) > call.now:
            problem = "`created_at` is in the future"
        elif problem is not None:
            problem = f"`password_hash`: {problem}"
        status: Literal["exists", "invalid"] = "exists" if problem is None else "invalid"
        results.append({"email": user["email"], "status": status, "user_id": None, "reason": problem})
        if problem is None:
            further: dict[str, Any] = {name: value for name, value in user.items() if name != "email"}
            rows_by_email.setdefault(
                user["email"], build_user(call.services, app_id, user["email"], "email", **further)
            )
    ids_by_email = await _insert(call, list(rows_by_email.values()))
    for line in results:
        if line["status"] == "exists" and (user_id := ids_by_email.pop(line["email"], None)) is not None:
            line["status"], line["user_id"] = "created", user_id
    counts = {status: sum(line["status"] == status for line in results) for status in ("created", "exists", "invalid")}
    call.audit.data |= counts
    call.audit.nothing_done = not counts["created"]
    return {"results": results, "created": counts["created"], "exist": counts["exists"], "invalid": counts["invalid"]}


async def _insert(call: Call, new_rows: list[dict[str, Any]]) -> dict[str, str]:
    """Inserts users, but for those whose address the app has. Returns the ids of those that are new, by address."""
    ids_by_email: dict[str, str] = {}
    async with FREEZES.writing(call) as unit:
        for start in range(0, len(new_rows), _IN_ONE_STATEMENT):
            upsert: Any = build_upsert(call.stores.database.dialect, rows)
            upsert = upsert.values(new_rows[start : start + _IN_ONE_STATEMENT]).on_conflict_do_nothing()
            inserted_rows = await unit.execute(upsert.returning(rows.c.email, rows.c.id))
            ids_by_email |= {row.email: row.id for row in inserted_rows}
        # After the insert, which alone knows who is new; more than there is room for is taken back as a whole.
        await require_user_room(unit.execute, call.require_app(), call.now, more=0)
    return ids_by_email
