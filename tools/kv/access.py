"""Access to keys: those who run the app reach every key, all others only the keys that rules expose to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baobab.tools.core import (
    Account,
    Anonymous,
    AppKey,
    AppNotFound,
    BaobabError,
    Caller,
    EndUser,
    Forbidden,
    Role,
    Unauthenticated,
    require_role,
)
from baobab.tools.core.auth.access import owner_role
from baobab.tools.core.auth.callers import FunctionKey
from baobab.tools.core.errors import InvalidUserToken
from baobab.tools.kv.errors import ForeignCredential
from baobab.tools.kv.rules import RuleBook, RuleBooks, Verb

if TYPE_CHECKING:
    from baobab.tools.core import Call


async def runs_app(call: "Call") -> bool:
    """Returns whether the caller runs the app. Raises ForeignCredential or InvalidUserToken for a foreign one."""
    caller = call.caller
    if isinstance(caller, (Account, AppKey)):
        try:
            call.role = await owner_role(call)
        except Forbidden as exc:
            raise ForeignCredential from exc
        return True
    if isinstance(caller, FunctionKey):
        if caller.app_id != call.require_app().id:
            raise ForeignCredential(f"This credential does not belong to the app {call.require_app().id}.")
        # It reaches every key, as a member does; tools that need more check that themselves.
        call.role = "member"
        return True
    if isinstance(caller, EndUser):
        if caller.app_id != call.require_app().id:
            raise InvalidUserToken("The token was issued by another app.")
        return False
    if isinstance(caller, Anonymous):
        return False
    raise ForeignCredential("This key does not open the key-value store.")


async def rule_book(call: "Call") -> RuleBook:
    return await call.services.of(RuleBooks).get(call.require_app().id)


@dataclass(frozen=True, slots=True)
class ExposedAccess:
    """Admits those who run the app, and others whom a rule allows the verb.

    key: the argument whose value the rules are checked for; None for a batch, whose handler checks each key itself.
    """

    verb: Verb
    key: str | None = "key"
    anonymous: bool = True
    credential: bool = True
    raises: tuple[type[BaobabError], ...] = (
        Unauthenticated,
        InvalidUserToken,
        Forbidden,
        ForeignCredential,
        AppNotFound,
    )

    @property
    def description(self) -> str:
        return f"Those who run the app; end users and anonymous callers where an expose rule lets them {self.verb}."

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account | AppKey | FunctionKey | EndUser | Anonymous)

    async def authorise(self, call: "Call", arguments: Mapping[str, Any]) -> None:
        if await runs_app(call) or self.key is None:
            return
        key = arguments.get(self.key)
        (await rule_book(call)).require(key if isinstance(key, str) else "", self.verb, call.caller)


@dataclass(frozen=True, slots=True)
class Operator:
    """Admits those who run the app. Everybody else gets Forbidden, anonymous callers too, instead of Unauthenticated.

    role: which an account, or the maker of an app key, needs. functions: whether the app's function key may, too.
    """

    role: Role = "member"
    functions: bool = True
    anonymous: bool = False
    credential: bool = True
    raises: tuple[type[BaobabError], ...] = (InvalidUserToken, Forbidden, ForeignCredential, AppNotFound)

    @property
    def description(self) -> str:
        keys = "a key of the app, or its function key" if self.functions else "a key of the app"
        return f"An account with the role `{self.role}` in the app's organisation, {keys}."

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account | AppKey) or (self.functions and isinstance(caller, FunctionKey))

    async def authorise(self, call: "Call", arguments: Mapping[str, Any]) -> None:
        if not await runs_app(call):
            raise Forbidden(f"{call.tool.name} is for those who run the app.")
        if isinstance(call.caller, FunctionKey):
            if not self.functions:
                raise Forbidden(f"{call.tool.name} is for people and their keys, not for the function key.")
            return
        require_role(call.role, self.role)


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The owner and the keys of the app, and its signed-in users."""

    anonymous: bool = False
    credential: bool = True
    description: str = "A key of the app, an account in its organisation, or a user of the app."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, InvalidUserToken, ForeignCredential, AppNotFound)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account | AppKey | FunctionKey | EndUser)

    async def authorise(self, call: "Call", arguments: Mapping[str, Any]) -> None:
        if isinstance(call.caller, Anonymous):
            raise Unauthenticated
        await runs_app(call)
