"""Access objects for the tools of approvals. Who may decide about one call is in core/auth/deciders.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core import (
    Account,
    Anonymous,
    AnyAccount,
    AppKey,
    BaobabError,
    Call,
    Caller,
    EndUser,
    Forbidden,
    Role,
    Unauthenticated,
)
from baobab.tools.core.auth.callers import ScopedKey
from baobab.tools.core.auth.deciders import NotYoursToDecide
from baobab.tools.core.auth.roles import APPROVER

_ACCOUNT = AnyAccount(APPROVER)


@dataclass(frozen=True, slots=True)
class ApprovalReader:
    """Callers who may have proposed a call, or may be asked to decide about one."""

    role: Role = APPROVER
    anonymous: bool = False
    credential: bool = True
    description: str = "An account, any API key, or a user of an app."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, (Account, AppKey, ScopedKey, EndUser))

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        if isinstance(call.caller, Anonymous):
            raise Unauthenticated
        if not self.admits(call.caller):
            raise Forbidden("This credential neither proposes calls nor decides about them.")


@dataclass(frozen=True, slots=True)
class ApprovalDecider:
    """An account, a key of an app or a user of an app. A credential that needs approval itself decides nothing."""

    role: Role = APPROVER
    apps: bool = True
    """Whether keys and users of apps are among them."""
    anonymous: bool = False
    credential: bool = True
    description: str = (
        "An account (its token, or an API key with the scope `*` and without limits), a key of the app "
        "without limits, or a user of the app: whoever is among the approvers."
    )
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden)

    def admits(self, caller: Caller) -> bool:
        kinds = (Account, AppKey, EndUser) if self.apps else (Account,)
        return isinstance(caller, kinds) and caller.limits is None

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        if call.caller.limits is not None:
            # Refused before the key's limits apply, which would propose the decision itself for approval.
            raise NotYoursToDecide
        if not self.apps or not isinstance(call.caller, (AppKey, EndUser)):
            await _ACCOUNT.authorise(call, arguments)


READERS, DECIDERS = ApprovalReader(), ApprovalDecider()
PEOPLE = ApprovalDecider(
    apps=False, description="An account: its token, or an API key with the scope `*` and without limits."
)
