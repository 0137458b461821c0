"""Sessions of apps' users, as far as the verification of their tokens needs them."""

from typing import Protocol

USER_TOPIC = "user"
"""The topic of notices that a user's sessions, role or ban have changed."""


class UserSessions(Protocol):
    """The port through which a token's session is looked up (tools/users/session_check.py)."""

    async def find_role(self, app_id: str, user_id: str, session_id: str) -> str | None:
        """Returns the role that a user has now; None where the session has ended or the user is banned or gone."""
        ...


def user_subject(app_id: str, user_id: str) -> str:
    """Returns the subject of a notice about a user of an app."""
    return f"{app_id}:{user_id}"
