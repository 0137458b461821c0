"""Roles: what the members of an organisation may, from `approver` to `owner`."""

from typing import Literal

from baobab.tools.core.errors import Forbidden

Role = Literal["approver", "member", "admin", "owner"]
APPROVER: Role = "approver"
_RANK = {"approver": 0, "member": 1, "admin": 2, "owner": 3}


def rank(role: str) -> int:
    """Returns the number by which roles are compared: 0 for `approver`, 3 for `owner`."""
    return _RANK[role]


def require_role(role: Role | None, needed_role: Role) -> None:
    """Raises Forbidden for a role below the one that is needed, or for none."""
    if role is None:
        raise Forbidden("This account is not a member of the organisation.")
    if _RANK[role] < _RANK[needed_role]:
        message = f"This needs the role `{needed_role}`; this account has `{role}`."
        raise Forbidden(message, details={"needed_role": needed_role})
