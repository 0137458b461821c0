"""Limits on wrong passwords: from one address, and for one account."""

from baobab.storage.secrets import digest_token
from baobab.tools.core.call import Call
from baobab.tools.core.limits.rate_limits import network, resolve_answer

WINDOW_SECONDS = 900
MOST_FROM_ADDRESS = 10
MOST_FOR_ACCOUNT = 20
"""After so many from anywhere, an address that has itself sent a wrong password for the account must wait."""
_UNBOUNDED = 100_000


class PasswordAttempts:
    """Counts the wrong passwords for one account, or user of an app, and from the address of the present sign-in.

    Accounts that do not exist are counted alike, so that nobody learns here which ones exist.
    """

    def __init__(self, call: Call, email: str) -> None:
        prefix = "" if call.app is None else f"{call.app.id}:"
        self._limits = call.services.limits
        self._address = f"{prefix}{network(call.context.ip)}"
        self._account = digest_token(f"{prefix}{email}")
        self._account_from_address = f"{self._account}:{self._address}"

    async def require_room(self) -> None:
        """Raises RateLimited if this address may not try another password now."""
        if await self._count_used("wrong_from", self._address, MOST_FROM_ADDRESS) >= MOST_FROM_ADDRESS:
            await self._spend("wrong_from", self._address, MOST_FROM_ADDRESS)
        if await self._count_used("wrong_for", self._account, _UNBOUNDED) < MOST_FOR_ACCOUNT:
            return
        # An address that has not failed yet may be the owner's: strangers must not be able to lock the owner out.
        if await self._count_used("wrong_for_from", self._account_from_address, 1) >= 1:
            await self._spend("wrong_for_from", self._account_from_address, 1)

    async def count_wrong(self) -> None:
        """Counts a wrong password. Raises RateLimited if concurrent attempts have used up the limit."""
        await self._spend("wrong_for", self._account, _UNBOUNDED)
        if await self._count_used("wrong_for_from", self._account_from_address, 1) < 1:
            await self._spend("wrong_for_from", self._account_from_address, 1)
        await self._spend("wrong_from", self._address, MOST_FROM_ADDRESS)

    async def _count_used(self, policy: str, subject: str, amount: int) -> int:
        return await resolve_answer(self._limits.count_used(policy, subject, amount, WINDOW_SECONDS))

    async def _spend(self, policy: str, subject: str, amount: int) -> None:
        await resolve_answer(self._limits.spend(policy, subject, amount, WINDOW_SECONDS))
