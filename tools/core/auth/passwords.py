"""The rules for passwords of accounts and of apps' users, and their types."""

from typing import Annotated

from pydantic import Field

from baobab.tools.core.errors import BadRequest
from baobab.tools.core.secret import Secret

LONGEST = 256
_SHORTEST = 8

Password = Annotated[
    str,
    Secret(LONGEST),
    Field(description="At least 8 characters with an uppercase letter, a lowercase letter, a digit and a special one."),
]
"""A password that is set."""
AnyPassword = Annotated[str, Secret(LONGEST)]
"""A password that is compared with one that was set, perhaps under other rules."""


class WeakPassword(BadRequest):
    summary = "The password does not meet the requirements."
    remediation = "Choose a password that meets all of details.rules."


def check_password(password: str) -> None:
    """Raises WeakPassword with the rules that the password breaks."""
    rules = {
        f"at least {_SHORTEST} characters": len(password) >= _SHORTEST,
        "an uppercase letter": any(c.isupper() for c in password),
        "a lowercase letter": any(c.islower() for c in password),
        "a digit": any(c.isdigit() for c in password),
        "a special character": any(not c.isalnum() for c in password),
    }
    broken_rules = [rule for rule, is_fulfilled in rules.items() if not is_fulfilled]
    if broken_rules:
        raise WeakPassword(f"The password needs {', '.join(broken_rules)}.", details={"rules": broken_rules})
