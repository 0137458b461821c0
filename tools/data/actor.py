"""The actor of a query or a write: the app itself, one of its users, or a visitor."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["service", "user", "anon"]


@dataclass(frozen=True, slots=True)
class Actor:
    """role: `service` reaches every row; the others what policies open. user_id: of a user, what `current_user_id()`
    answers; user_role: the role that the app has given the user, what `current_user_role()` answers.
    """

    role: Role
    user_id: str | None = None
    user_role: str | None = None


SERVICE = Actor("service")
VISITOR = Actor("anon")
