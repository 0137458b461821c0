"""The actor of a query or a write: the app itself, one of its users, or a visitor."""

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["service", "user", "anon"]


@dataclass(frozen=True, slots=True)
class Actor:
    """role: `service` reaches every row; the others what policies open. user_id: of a user, what `current_user_id()`
    answers; user_role: the role that the app has given the user, what `current_user_role()` answers; None if it has not
    been looked up (rows/claims.py). claims: what else policies may ask of a user, by name; None like the role.
    is_unknown: whether the app was found to have no such user.
    """

    role: Role
    user_id: str | None = None
    user_role: str | None = None
    claims: tuple[tuple[str, str | None], ...] | None = None
    is_unknown: bool = field(default=False, compare=False)

    def find_claim(self, name: str) -> str | None:
        return dict(self.claims or ()).get(name)


SERVICE = Actor("service")
VISITOR = Actor("anon")
