"""Who operates the installation, and what is wrong with its settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import select

from baobab.tools.core.auth.access import AnyAccount
from baobab.tools.core.auth.callers import Account, Caller
from baobab.tools.core.auth.tables import accounts
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BaobabError, Forbidden, Unauthenticated
from baobab.tools.core.services import Services

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


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


def list_faults(settings: Mapping[str, str], options_address: str) -> list[str]:
    """What is wrong with the settings, or will be in production, each in a sentence or two."""
    faults: list[str] = []
    address = urlsplit(options_address)
    is_local = address.hostname in _LOOPBACK
    if not is_local and address.scheme != "https":
        faults.append(
            "BASE_URL is not https: others on the way can read passwords, keys and sessions, and browsers offer "
            "no passkeys. Put a proxy with TLS before the server, and set BAOBAB_BASE_URL to its https address."
        )
    if is_local and settings["host"] not in _LOOPBACK:
        faults.append(
            "The server listens to other machines, but links in mails and the addresses told to clients name this "
            "machine only. Set BAOBAB_BASE_URL."
        )
    if not is_local and not settings["trusted_proxies"]:
        faults.append(
            "No proxy is trusted. If one stands before the server, all clients seem to come from its address and share "
            "one rate limit: set BAOBAB_TRUSTED_PROXIES."
        )
    if not settings["smtp_url"]:
        faults.append("There is no mail server: mails wait in the outbox, and nobody gets them. Set BAOBAB_SMTP_URL.")
    if not is_local and settings["signup"] == "open":
        faults.append(
            "Everybody who reaches the server can make an account. Set BAOBAB_SIGNUP=closed if that is not meant."
        )
    if not settings["secret_key"]:
        faults.append(
            "The key that seals secrets is in the data folder, beside what it seals. Keep a copy elsewhere, or set "
            "BAOBAB_SECRET_KEY."
        )
    return faults
