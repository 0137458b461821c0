"""Access objects that admit members of an organisation, which the id in the path names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core import (
    Account,
    Anonymous,
    BaobabError,
    Call,
    Caller,
    Forbidden,
    Role,
    Unauthenticated,
    require_role,
)
from baobab.tools.organisations.errors import OrganisationNotFound

_ID_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Member:
    """An account with at least `role` in the organisation of the path. Strangers are told that it does not exist."""

    role: Role = "member"
    anonymous: bool = False
    credential: bool = True
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden, OrganisationNotFound)

    @property
    def description(self) -> str:
        return f"An account with the role `{self.role}` in the organisation: its token, or a key of that organisation."

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        if isinstance(caller, Anonymous):
            raise Unauthenticated
        if not isinstance(caller, Account):
            raise Forbidden(f"{call.tool.name} needs the credential of an account.")
        organisation_id = arguments.get("organization_id")
        if caller.key_id is not None and organisation_id != caller.organisation_id:
            raise Forbidden("An API key is pinned to its organisation.")
        is_id = isinstance(organisation_id, str) and len(organisation_id) == _ID_LENGTH
        call.role = await call.services.directory.role(str(organisation_id), caller.account_id) if is_id else None
        if call.role is None:
            raise OrganisationNotFound
        require_role(call.role, self.role)
        call.unit.lock_for(str(organisation_id))
