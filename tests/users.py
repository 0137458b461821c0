"""Users of an app for tests that are about something else: signed in, without passwords or mail."""

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import update

from baobab.composition import Application
from baobab.storage.sql.tables import build_upsert
from baobab.tools.users.tables import user_sessions, users


async def mint_user_token(
    application: Application, app_id: str, user_id: str, lifetime: int = 3600, **claims: Any
) -> str:
    """An access token of a user of an app, who is made with a session if there is no such user yet.

    claims: put into the token in place of what the app would say; `role` is also what the user's row says.
    """
    services = application.services
    app, now = await services.directory.app(app_id), services.clock.now()
    stores = services.stores_of(app.region)
    role = claims.get("role", "user")
    user = {"app_id": app_id, "id": user_id, "email": f"{user_id}@users.test", "provider": "email", "created_at": now}
    session_id = session_id_of(user_id)
    session = {"app_id": app_id, "id": session_id, "user_id": user_id, "generation": 0, "method": "email"}
    session |= {"created_at": now, "refreshed_at": now, "expires_at": now.replace(year=now.year + 1)}
    async with stores.database.writing(lock=app_id) as connection:
        for table, row in ((users, {**user, "role": role}), (user_sessions, session)):
            upsert = build_upsert(stores.database.dialect, table).values(**row)
            key = ["app_id", "id"]
            changes = {"role": role} if table is users else {"expires_at": row["expires_at"]}
            await connection.execute(upsert.on_conflict_do_update(index_elements=key, set_=changes))
    return await services.signers.mint(app_id, {"sub": user_id, "sid": session_id, **claims}, lifetime)


async def verify_user(application: Application, app_id: str, user_id: str) -> None:
    """Makes the address of a user who was made here a verified one."""
    app = await application.services.directory.app(app_id)
    is_user = (users.c.app_id == app_id, users.c.id == user_id)
    async with application.services.stores_of(app.region).database.writing(lock=app_id) as connection:
        await connection.execute(update(users).where(*is_user).values(email_verified=True))


def session_id_of(user_id: str) -> str:
    """The session of a user who was made here."""
    return str(uuid5(NAMESPACE_URL, user_id))
