"""Whose a generation job is: the users of an app see their own only, and only the submitter has the files."""

from typing import Any

from baobab.tools.ai.media.errors import JobNotFound, NotSubmitter
from baobab.tools.core.auth.callers import Account, Caller, EndUser


def submitter(caller: Caller) -> str:
    """The user, or the account or the key itself: not all that an account holds."""
    if isinstance(caller, EndUser):
        return f"user:{caller.user_id}"
    if isinstance(caller, Account) and caller.key_id is None:
        return f"account:{caller.account_id}"
    return f"key:{caller.actor_id}"


def require_visible(caller: Caller, row: Any) -> None:
    """JobNotFound where a user asks for what is somebody else's."""
    if isinstance(caller, EndUser) and row.submitter != submitter(caller):
        raise JobNotFound


def require_submitter(caller: Caller, row: Any) -> None:
    require_visible(caller, row)
    if row.submitter != submitter(caller):
        raise NotSubmitter
