"""The owner of a generation job. The users of an app see only their own jobs, and only the submitter gets the files."""

from typing import Any

from baobab.tools.ai.media.errors import JobNotFound, NotSubmitter
from baobab.tools.core import Account, Caller, EndUser


def submitter(caller: Caller) -> str:
    """Returns the submitter's id: the user, the account or the single key, not all keys of an account."""
    if isinstance(caller, EndUser):
        return f"user:{caller.user_id}"
    if isinstance(caller, Account) and caller.key_id is None:
        return f"account:{caller.account_id}"
    return f"key:{caller.actor_id}"


def require_visible(caller: Caller, row: Any) -> None:
    """Raises JobNotFound if a user asks for somebody else's job."""
    if isinstance(caller, EndUser) and row.submitter != submitter(caller):
        raise JobNotFound


def require_submitter(caller: Caller, row: Any) -> None:
    require_visible(caller, row)
    if row.submitter != submitter(caller):
        raise NotSubmitter
