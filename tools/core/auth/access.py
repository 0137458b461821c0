"""Access objects, which decide who may call a tool. Each tool names one, which is asked once per call. No default."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, EndUser, ScopedKey
from baobab.tools.core.auth.directory import App, Directory
from baobab.tools.core.auth.roles import APPROVER, Role, require_role
from baobab.tools.core.call import Access, Call
from baobab.tools.core.errors import AppNotFound, BaobabError, Forbidden, Unauthenticated


@dataclass(frozen=True, slots=True)
class Everybody:
    """Everyone may call, with or without a credential."""

    anonymous: bool = True
    credential: bool = False
    description: str = "Public; no credential."
    raises: tuple[type[BaobabError], ...] = ()

    def admits(self, caller: Caller) -> bool:
        return True

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        return None


@dataclass(frozen=True, slots=True)
class AnyAccount:
    """An account: token, or key with the scope `*` unless `keys` is False. `role`: in its organisation.

    named_role: what the handler requires in the organisation that the arguments name, if that is more.
    """

    role: Role = "member"
    keys: bool = True
    named_role: Role | None = None
    anonymous: bool = False
    credential: bool = True
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden)

    @property
    def description(self) -> str:
        return f"An account: its token, {'or an API key with the scope `*`' if self.keys else 'not a key'}."

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account) and (self.keys or caller.key_id is None)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        if isinstance(caller, Anonymous):
            raise Unauthenticated
        if not isinstance(caller, Account):
            raise Forbidden(f"{call.tool.name} needs the credential of an account.")
        if caller.key_id is not None and not self.keys:
            raise Forbidden(
                f"{call.tool.name} takes the account's own token, not a key.",
                remediation="Sign in with op:platform_login and send the token that it returns.",
            )
        call.role = await call.services.directory.role(caller.organisation_id, caller.account_id)
        require_role(call.role, self.role)


@dataclass(frozen=True, slots=True)
class AppOwner:
    """The accounts with a role in the app's organisation, and the keys of the app unless `keys` is False."""

    role: Role = "member"
    keys: bool = True
    anonymous: bool = False
    credential: bool = True
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden, AppNotFound)

    @property
    def description(self) -> str:
        keys = ", or a key of this app" if self.keys else ""
        return f"An account with the role `{self.role}` in the app's organisation{keys}."

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account) or (self.keys and isinstance(caller, AppKey))

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        if isinstance(caller, Anonymous):
            raise Unauthenticated
        if isinstance(caller, Account) or (self.keys and isinstance(caller, AppKey)):
            call.role = await owner_role(call)
            require_role(call.role, self.role)
            return
        raise Forbidden(f"{call.tool.name} is for those who run the app.")


@dataclass(frozen=True, slots=True)
class OfApp:
    """Accounts of the app's organisation, keys of the app, and its users. The handler checks what each may do."""

    anonymous: bool = False
    credential: bool = True
    description: str = "A member of the app's organisation, a key of the app, or a user of the app."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden, AppNotFound)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, (Account, AppKey, EndUser))

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        if isinstance(caller, Anonymous):
            raise Unauthenticated
        if isinstance(caller, EndUser):
            if caller.app_id != call.require_app().id:
                raise Forbidden(_not_of(call.require_app()))
            return
        if not isinstance(caller, (Account, AppKey)):
            raise Forbidden(f"{call.tool.name} is for an app's organisation and its users.")
        call.role = await owner_role(call)


EVERYBODY, OF_APP = Everybody(), OfApp()


def is_for_approvers(access: Access) -> bool:
    """Returns whether a tool is for members who only decide. Each tool is closed to them unless its access object says
    so by `role`, or looks at no credential at all.
    """
    return not access.credential or getattr(access, "role", None) == APPROVER


def least_role(access: Access) -> Role:
    """Returns the lowest role of a member of the organisation for whom a tool may be open at all."""
    if is_for_approvers(access):
        return APPROVER
    role: Role | None = getattr(access, "named_role", None)
    return role or cast(Role, getattr(access, "role", "member"))


async def authorise_call(call: Call, arguments: Mapping[str, Any]) -> None:
    """Asks the access object of the call's tool, and refuses approvers all tools that are not for them.

    Raises what the access object raises, and Forbidden for an approver.
    """
    access = call.tool.access
    await access.authorise(call, arguments)
    if is_for_approvers(access):
        return
    role = call.role
    if role is None and isinstance(call.caller, (Account, AppKey, ScopedKey)):
        role = await find_role(call.services.directory, call.caller, call.app)
    if role == APPROVER:
        require_role(role, "member")


async def find_role(directory: Directory, caller: Caller, app: App | None) -> Role | None:
    """Returns the role of the account behind a credential: in the app's organisation, else in the caller's own."""
    if app is not None and isinstance(caller, (Account, AppKey, ScopedKey)) and caller.account_id is not None:
        member = app.organisation_id, caller.account_id
    elif isinstance(caller, (Account, ScopedKey)):
        member = caller.organisation_id, caller.account_id
    else:
        return None
    return directory.cached_role(*member) or await directory.role(*member)


def require_sign_in(call: Call) -> None:
    """Raises Unauthenticated for an anonymous call of an app whose access mode is `authenticated`.

    Tools that take a token of their own in place of a credential (event streams) are exempt, and so are those whose
    access is open `in_every_mode`.
    """
    if not isinstance(call.caller, Anonymous) or call.app is None or not call.tool.access.credential:
        return
    if getattr(call.tool.access, "in_every_mode", False):
        return
    if call.app.access_mode == "authenticated":
        raise Unauthenticated("This app requires sign-in.", remediation="Send a token of one of the app's users.")


async def owner_role(call: Call) -> Role:
    """Returns the role of an account or app key in the called app: `member` at least. Raises Forbidden for an app of
    another organisation, and for an approver, who does not run it.

    Such an app is told apart from one that does not exist (403, or 401 without a credential, against 404): every
    visitor of an app sends its id, so it is no secret, and a developer who misspelt it must not go looking for another
    key.
    """
    app, caller, directory = call.require_app(), call.caller, call.services.directory
    if isinstance(caller, Account):
        if caller.key_id is None or caller.organisation_id == app.organisation_id:
            member = app.organisation_id, caller.account_id
            role = directory.cached_role(*member) or await directory.role(*member)
            if role is not None:
                require_role(role, "member")
                return role
    elif isinstance(caller, AppKey) and caller.app_id == app.id:
        # A key never gives more than its maker has now, whatever they had when they made it.
        account_id = caller.account_id
        role = "owner" if account_id is None else await directory.role(app.organisation_id, account_id)
        if role is not None:
            require_role(role, "member")
            return role
    raise Forbidden(_not_of(app))


def _not_of(app: App) -> str:
    return f"This credential does not belong to the app {app.id}."
