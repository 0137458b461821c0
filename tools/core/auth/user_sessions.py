"""Sessions of apps' users, as far as the verification of their tokens needs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

USER_TOPIC = "user"
"""The topic of notices that a user's sessions, role or ban have changed."""


@dataclass(frozen=True, slots=True)
class UserAddress:
    """The address of a user, which is None for an anonymous one, and the role that the app has given the user."""

    email: str | None
    is_verified: bool
    role: str


class UserSessions(Protocol):
    """The port through which a token's session is looked up (tools/users/session_check.py)."""

    async def find_role(self, app_id: str, user_id: str, session_id: str) -> str | None:
        """Returns the role that a user has now; None where the session has ended or the user is banned or gone."""
        ...

    async def find_addresses(self, app_id: str, user_ids: Sequence[str]) -> Mapping[str, UserAddress]:
        """Returns the addresses that users have now, by their ids. Those whom the app does not have are left out."""
        ...


def user_subject(app_id: str, user_id: str) -> str:
    """Returns the subject of a notice about a user of an app."""
    return f"{app_id}:{user_id}"
