"""Expressions about the caller, also in the words of Supabase: `auth.role()`, `auth.email()`, `auth.jwt()`."""

from typing import Any

from baobab.tools.data.errors import InvalidExpression
from baobab.tools.data.schema.catalogue import Expression

SIGNED_IN: Expression = ["not", ["is", ["user"], "null"]]
VISITING: Expression = ["is", ["user"], "null"]
API_ROLE: Expression = [
    "case",
    [[VISITING, ["value", "text", "anon"]]],
    ["value", "text", "authenticated"],
]
"""What `auth.role()` is: `authenticated` for every user, whatever role the app has given them, and `anon` for visitors.
"""
_FUNCTIONS: dict[str, Expression] = {
    "current_user_id": ["user"],
    "auth.uid": ["user"],
    "current_user_role": ["role"],
    "auth.role": API_ROLE,
    "current_user_email": ["claim", "email"],
    "auth.email": ["claim", "email"],
    "auth.jwt": ["jwt"],
}
_CLAIMS: dict[str, Expression] = {
    "sub": ["user"],
    "role": API_ROLE,
    "email": ["claim", "email"],
    "email_verified": ["claim", "email_verified"],
    "is_anonymous": ["claim", "is_anonymous"],
}
BOOLEAN_CLAIMS = ("email_verified", "is_anonymous")


def find_caller(name: str) -> Expression | None:
    """Returns what a function of the caller is; None for any other function."""
    return _FUNCTIONS.get(name)


def find_claim(steps: list[str | int], *, as_text: bool) -> Expression:
    """Returns what `auth.jwt() ->> 'email'` is. Raises InvalidExpression for claims that tokens do not have."""
    if len(steps) == 1 and as_text and steps[0] in _CLAIMS:
        return _CLAIMS[str(steps[0])]
    raise InvalidExpression(
        f"The token has no claim `{str(steps[0])[:60]}` for policies; there are `auth.jwt() ->> 'email'`, "
        f"and so {', '.join(name for name in _CLAIMS if name != 'email')}.",
        remediation="Keep what else you know of users in a table of your own, with their ids, and ask it: "
        "`exists (select 1 from profiles where id = current_user_id() and plan = 'pro')`. A role that the app gives "
        "to a user is `current_user_role()`.",
    )


def compare_role(operator: str, left: Expression, right: Expression) -> Expression | None:
    """Returns a comparison of `auth.role()` with a name; None for any other comparison."""
    name = right if left == API_ROLE else left if right == API_ROLE else None
    if name is None or operator not in ("=", "<>"):
        return None
    require_role_name(name)
    if name[0] != "value":
        return None
    is_user = (name[2] == "authenticated") == (operator == "=")
    return SIGNED_IN if is_user else VISITING


def require_role_name(tree: Any) -> None:
    """Raises InvalidExpression for a text that `auth.role()` can never be."""
    if tree[0] == "value" and tree[2] == "service_role":
        raise InvalidExpression(
            "`auth.role()` is never `service_role` in a policy.",
            remediation="Leave this policy out: the app's keys and owners reach every row without one.",
        )
    if tree[0] == "value" and tree[2] not in ("authenticated", "anon"):
        raise InvalidExpression(
            f"`auth.role()` is `authenticated` or `anon`, and never `{str(tree[2])[:40]}`.",
            remediation="For the role that the app has given to a user, write `current_user_role()`.",
        )
