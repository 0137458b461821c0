"""Access objects of the substrate: who may use it, and for whom they act."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import bindparam, select

from baobab.tools.core import (
    Account,
    Anonymous,
    AppNotFound,
    AppOwner,
    BaobabError,
    Call,
    Caller,
    Forbidden,
    Role,
    Services,
    Unauthenticated,
    require_role,
)
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.callers import ScopedKey
from baobab.tools.core.auth.deciders import NotYoursToDecide
from baobab.tools.core.auth.tables import api_keys, apps
from baobab.tools.core.errors import InvalidApiKey
from baobab.tools.substrate.errors import AgentsDoNotDecide

SCOPE = "substrate"
# Built once, since that takes longer than to run them.
_LINKED = select(apps.c.substrate_organization_id).where(apps.c.id == bindparam("of_app"))
_LIVE_KEY = select(api_keys.c.ends_at).where(api_keys.c.id == bindparam("of_key"), api_keys.c.revoked_at.is_(None))


@dataclass(frozen=True, slots=True)
class SubstrateCallers:
    """Admits members of an organisation by their token, and keys with the scope `substrate`: those of the substrate
    alone, and those that OAuth clients get. No other key opens it.
    """

    decides: bool = False
    """Whether the tool decides about actions or steers the policy: keys that ask a person themselves may not."""
    keys: bool = False
    """No key of an account opens it."""
    anonymous: bool = False
    credential: bool = True
    description: str = "An account's token, or a key with the scope `substrate`; no other key."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden)

    def admits(self, caller: Caller) -> bool:
        return _opens_substrate(caller) and not (self.decides and caller.limits is not None)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        if isinstance(caller, Anonymous):
            raise Unauthenticated
        if not isinstance(caller, (Account, ScopedKey)) or not _opens_substrate(caller):
            raise Forbidden(
                "The substrate takes an account's token, or a key with the scope `substrate`.",
                remediation="Make a key with op:api_keys_create and `scope: substrate`, or sign in.",
            )
        if self.decides and caller.limits is not None:
            raise NotYoursToDecide
        app_id = acting_app(call)
        if app_id is not None:
            await _require_link(call, app_id, caller.organisation_id)
        # An account that has left the organisation may no longer use its substrate.
        call.role = await call.services.directory.role(caller.organisation_id, caller.account_id)
        require_role(call.role, "member")


async def _require_link(call: Call, app_id: str, organisation_id: str) -> None:
    """Raises Forbidden for a run of an app that is not linked to the organisation's substrate: whoever writes the app's
    agents could otherwise read and change the memory of everybody who starts them.
    """
    linked_organisation_id = (await call.read(_LINKED, {"of_app": app_id})).scalar()
    if linked_organisation_id != organisation_id:
        raise Forbidden(
            "The app of this agent is not linked to your organisation's substrate.",
            remediation="An admin of the organisation links the app with op:apps_link_substrate.",
        )


CALLERS, DECIDERS = SubstrateCallers(), SubstrateCallers(decides=True)


@dataclass(frozen=True, slots=True)
class StreamReaders:
    """Admits whom the substrate admits, and those without a credential: their ticket or token is looked at later."""

    anonymous: bool = True
    keys: bool = False
    credential: bool = True
    description: str = "As the substrate's other operations, or with a ticket or a token in the query string."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Anonymous) or CALLERS.admits(caller)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        if not isinstance(call.caller, Anonymous):
            await CALLERS.authorise(call, arguments)


READERS = StreamReaders()


@dataclass(frozen=True, slots=True)
class EitherSide:
    """Admits admins of the app's organisation, and those of the organisation whose substrate the app is linked to."""

    role: Role = "admin"
    keys: bool = False
    anonymous: bool = False
    credential: bool = True
    description: str = "An account with the role `admin` in the app's organisation, or in the one that it is linked to."
    raises: tuple[type[BaobabError], ...] = (Unauthenticated, Forbidden, AppNotFound)

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Account)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        try:
            await _APP_ADMIN.authorise(call, arguments)
        except Forbidden:
            if not await self._is_admin_of_linked(call):
                raise

    async def _is_admin_of_linked(self, call: Call) -> bool:
        caller = call.caller
        if not isinstance(caller, Account) or not _opens_substrate(caller):
            return False
        query = select(apps.c.substrate_organization_id).where(apps.c.id == call.require_app().id)
        async with call.services.database.reading() as connection:
            linked_organisation_id = await connection.scalar(query)
        if linked_organisation_id is None or linked_organisation_id != caller.organisation_id:
            return False
        call.role = await call.services.directory.role(linked_organisation_id, caller.account_id)
        return call.role in ("admin", "owner")


_APP_ADMIN, EITHER_SIDE = AppOwner("admin", keys=False), EitherSide()


async def require_reader(services: Services, organisation_id: str, account_id: str, key_id: str | None = None) -> None:
    """Raises Forbidden for an account that has left the organisation, InvalidApiKey for a key that is not valid now.

    key_id: the key with which the account reads; None if it was signed in.
    """
    require_role(await services.directory.role(organisation_id, account_id), "member")
    if key_id is None:
        return
    async with services.database.reading() as connection:
        key = (await connection.execute(_LIVE_KEY, {"of_key": key_id})).first()
    if key is None or (key.ends_at is not None and key.ends_at <= services.clock.now()):
        raise InvalidApiKey


def _opens_substrate(caller: Caller) -> bool:
    if isinstance(caller, Account):
        return caller.key_id is None or caller.substrate
    return isinstance(caller, ScopedKey) and SCOPE in caller.scopes


@dataclass(frozen=True, slots=True)
class Proposer:
    """Says who proposes an action, and what that allows."""

    kind: Literal["human", "agent"]
    name: str | None
    """The credential, as `key:<id>` or `platform_user:<id>`."""
    may_skip: bool = False
    """Whether it may have an action done without approval: an owner in person."""
    entity_id: str | None = None
    app_id: str | None = None
    rule_id: str | None = None
    trigger_context: Mapping[str, Any] | None = None
    from_strangers: bool = False
    """Whether text of strangers may be in what it proposes."""
    approval_id: str | None = None
    """The approved call that proposes it, if its credential has to ask first."""


def organisation_of(call: Call) -> str:
    """Returns the organisation whose substrate a call uses: the caller's."""
    caller = call.caller
    assert isinstance(caller, (Account, ScopedKey))
    return caller.organisation_id


def acting_app(call: Call) -> str | None:
    """Returns the app whose agent makes a call, now or once it is approved; None if no run makes it."""
    step, approved_attempt = call.context.step, call.approved_attempt
    if step is not None:
        return step.app_id
    return None if approved_attempt is None or approved_attempt.run_id is None else approved_attempt.app_id


def proposer_of(call: Call, trigger_context: Mapping[str, Any] | None = None) -> Proposer:
    """Returns the proposer of a call's action. A call over MCP, from a run or of a function is an agent's, and so is a
    call with a key that has to ask a person for some of its calls.
    """
    step, approved_attempt, caller = call.context.step, call.approved_attempt, call.caller
    # A call of a run that a person has approved is still the run's.
    run_id = step.run_id if step is not None else approved_attempt and approved_attempt.run_id
    is_agent = run_id is not None or call.context.name in ("mcp", "function") or caller.limits is not None
    return Proposer(
        kind="agent" if is_agent else "human",
        name=proposers.proposer_name(caller) if run_id is None else f"run:{run_id}",
        app_id=acting_app(call),
        may_skip=not is_agent and isinstance(caller, Account) and call.role == "owner",
        trigger_context=trigger_context,
        from_strangers=call.context.brings_outside_text
        or (step is not None and step.tainted)
        or (approved_attempt is not None and approved_attempt.tainted),
        approval_id=None if approved_attempt is None else approved_attempt.id,
    )


def require_person(call: Call) -> None:
    """Raises AgentsDoNotDecide for a call that an agent makes."""
    if proposer_of(call).kind == "agent":
        raise AgentsDoNotDecide
