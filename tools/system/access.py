"""The access object for those who operate the installation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from baobab.tools.core import Account, AnyAccount, BaobabError, Call, Caller, Forbidden, Services, Unauthenticated
from baobab.tools.core.auth.tables import accounts


class Operator:
    """Knows the account that the installation began with. Accounts are not deleted, so it stays the same."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._account_id: str | None = None

    async def find_account_id(self) -> str | None:
        if self._account_id is None:
            oldest = select(accounts.c.id).order_by(accounts.c.created_at, accounts.c.id).limit(1)
            async with self._services.database.reading() as connection:
                self._account_id = await connection.scalar(oldest)
        return self._account_id


@dataclass(frozen=True, slots=True)
class OperatorOnly:
    """The account that the installation began with: its token, or a key of it without limits."""

    anonymous: bool = False
    credential: bool = True
    description: str = "The installation's first account: its token, or an API key without limits."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account) and caller.limits is None

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        await AnyAccount().authorise(call, arguments)
        first = await call.services.of(Operator).find_account_id()
        if call.account.account_id != first or call.caller.limits is not None:
            raise Forbidden(
                "This is for whoever operates the installation.",
                remediation="Use the installation's first account, or the command line on its machine.",
            )
