"""Looks up the session of a token, for the verification of credentials."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select

from baobab.storage.clock import Clock
from baobab.tools.core import AppNotFound, Unavailable
from baobab.tools.core.auth.directory import Directory
from baobab.tools.core.auth.user_sessions import UserAddress
from baobab.tools.core.stores import Stores
from baobab.tools.users.tables import user_sessions, users

_FIND_ROLE = (
    select(users.c.role)
    .join(user_sessions, (user_sessions.c.app_id == users.c.app_id) & (user_sessions.c.user_id == users.c.id))
    .where(
        user_sessions.c.app_id == bindparam("app"),
        user_sessions.c.id == bindparam("session"),
        user_sessions.c.user_id == bindparam("user"),
        user_sessions.c.expires_at > bindparam("now"),
        users.c.app_id == bindparam("app"),
        users.c.banned_at.is_(None),
    )
)

_FIND_ADDRESSES = select(users.c.id, users.c.email, users.c.email_verified, users.c.role).where(
    users.c.app_id == bindparam("app"), users.c.id.in_(bindparam("users", expanding=True))
)
_AT_ONCE = 500


class SessionCheck:
    """Answers from the rows of the app's region; whoever asks caches the answer (tools/core/auth/credentials.py)."""

    def __init__(self, directory: Directory, regions: Mapping[str, Stores], clock: Clock) -> None:
        self._directory = directory
        self._regions = regions
        self._clock = clock

    async def find_role(self, app_id: str, user_id: str, session_id: str) -> str | None:
        """Returns the role that a user has now; None where the session has ended or the user is banned or gone.

        Raises Unavailable if the stores of the app's region are not open.
        """
        parameters = {"user": user_id, "session": session_id, "now": self._clock.now()}
        rows = await self._find(app_id, _FIND_ROLE, parameters)
        return rows[0].role if rows else None

    async def find_addresses(self, app_id: str, user_ids: Sequence[str]) -> Mapping[str, UserAddress]:
        """Returns the addresses that users have now, by their ids. Those whom the app does not have are left out.

        Raises Unavailable if the stores of the app's region are not open.
        """
        addresses: dict[str, UserAddress] = {}
        for start in range(0, len(user_ids), _AT_ONCE):
            rows = await self._find(app_id, _FIND_ADDRESSES, {"users": list(user_ids[start : start + _AT_ONCE])})
            addresses |= {row.id: UserAddress(row.email, row.email_verified, row.role) for row in rows}
        return addresses

    async def _find(self, app_id: str, query: Any, parameters: Mapping[str, Any]) -> Sequence[Any]:
        try:
            region = (await self._directory.app(app_id)).region
        except AppNotFound:
            return []
        stores = self._regions.get(region)
        if stores is None:
            raise Unavailable(f"The stores of the region `{region}` do not answer.")
        async with stores.database.reading() as connection:
            return (await connection.execute(query, {"app": app_id, **parameters})).all()
