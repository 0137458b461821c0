"""Callers. An interface turns a credential into one of these; access objects check it, and audit rows name it."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, get_args

from baobab.tools.core.effects import Ask, Effect, Policy, needs_approval


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a key, beside those of its account: chosen when the key was created."""

    toolsets: frozenset[str] | None = None
    """The toolsets that it opens; None: all."""
    read_only: bool = False
    approval: Policy = "none"
    has_budget: bool = False
    """Whether there is a budget of what it spends, which nothing that it hands out may get around."""
    app_id: str | None = None
    """The only app that it opens; None: all apps that its account may use."""
    ends_at: datetime | None = None
    """When it expires, with all credentials that it has handed out."""
    always_ask: frozenset[str] = frozenset()
    never_ask: frozenset[str] = frozenset()
    """Tools whose calls wait, and do not wait, for a person whatever `approval` says."""
    tools: frozenset[str] | None = None
    """The only tools that it opens, by name: those that an app gives to its users over MCP. None: all."""

    @classmethod
    def of(cls, row: Any) -> "Limits | None":
        """Builds the limits from a key's row with `has_budget` (limits/credits.py); None if it has no limits."""
        toolsets = None if row.toolsets is None else frozenset(row.toolsets)
        limits = cls(toolsets, row.read_only, row.approval, row.has_budget, row.only_app_id, row.ends_at)
        if row.asks:
            always, never = (frozenset(tool for tool, ask in row.asks.items() if ask == rule) for rule in get_args(Ask))
            limits = replace(limits, always_ask=always, never_ask=never)
        return None if limits == cls() else limits

    @property
    def asks(self) -> bool:
        """Whether any call of the key may have to wait for a person."""
        return self.approval != "none" or bool(self.always_ask)

    def requires_approval(self, tool: str, effect: Effect) -> bool:
        """Returns whether a call of a tool that has this effect waits for a person."""
        if tool in self.never_ask or effect == "read":
            return False
        return tool in self.always_ask or needs_approval(effect, self.approval)


_KV_ONLY = Limits(frozenset({"kv"}))


@dataclass(frozen=True, slots=True)
class Caller:
    """The base class. `actor` and `actor_id` name the caller in audit rows."""

    @property
    def limits(self) -> Limits | None:
        """The limits of the caller's key; None if it has none."""
        return None

    @property
    def audience(self) -> str | None:
        """The only resource at which the caller's token is good; None if it is good wherever the caller is known."""
        return None

    @property
    def actor(self) -> str:
        return "anonymous"

    @property
    def actor_id(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class Anonymous(Caller):
    """No credential, or the public anon key of one app."""

    app_id: str | None = None


@dataclass(frozen=True, slots=True)
class Account(Caller):
    """An account, by token or by a key with the scope `*`; a key is pinned to its organisation."""

    account_id: str
    organisation_id: str
    key_id: str | None = None
    limits: Limits | None = None
    substrate: bool = False
    """Whether its key has the scope `substrate`, too, as those of OAuth clients have."""

    @property
    def actor(self) -> str:
        return "api_key" if self.key_id else "platform_user"

    @property
    def actor_id(self) -> str | None:
        return self.key_id or self.account_id


@dataclass(frozen=True, slots=True)
class AppKey(Caller):
    """A key of one app: what the account that made it may do there now.

    account_id: None where no credential came at all: the platform itself acts for the app.
    """

    app_id: str
    key_id: str
    account_id: str | None = None
    limits: Limits | None = None
    gateway: bool = False
    """Whether it has the scope `ai:gateway`: it then calls models at `/v1` as it does in its app."""

    @property
    def actor(self) -> str:
        return "api_key"

    @property
    def actor_id(self) -> str | None:
        return self.key_id


@dataclass(frozen=True, slots=True)
class ActingApp(AppKey):
    """The app itself. It makes one call of an agent's run, which somebody has approved, and nothing else: the registry
    refuses it any call that is not such an approved one (tools/core/registry.py).

    key_id: the id of the agent.
    """

    @property
    def actor(self) -> str:
        return "system"


@dataclass(frozen=True, slots=True)
class FunctionKey(Caller):
    """The key that an app's functions carry. It belongs to no person and opens the app's key-value store only."""

    app_id: str

    @property
    def key_id(self) -> str:
        return f"function:{self.app_id}"

    @property
    def actor(self) -> str:
        return "api_key"

    @property
    def actor_id(self) -> str | None:
        return self.key_id

    @property
    def for_users(self) -> Limits:
        """The limits of a user for whom this key acts."""
        return _KV_ONLY


@dataclass(frozen=True, slots=True)
class ScopedKey(Caller):
    """A key that opens a few operations only: `ai:gateway` or `substrate`."""

    account_id: str
    organisation_id: str
    key_id: str
    scopes: frozenset[str]
    limits: Limits | None = None

    @property
    def actor(self) -> str:
        return "api_key"

    @property
    def actor_id(self) -> str | None:
        return self.key_id


@dataclass(frozen=True, slots=True)
class EndUser(Caller):
    """A user of one app, by its token, or by the app's own key that acts for the user (`key_id` names it then)."""

    app_id: str
    user_id: str
    role: str = "user"
    key_id: str | None = None
    limits: Limits | None = None
    session_id: str | None = None
    """The session whose token the user showed; None where a key of the app acts for the user."""
    audience: str | None = None
    """The MCP endpoint of the app, if the token was given to an MCP client."""

    @property
    def actor(self) -> str:
        return "api_key" if self.key_id else "app_user"

    @property
    def actor_id(self) -> str | None:
        return self.key_id or self.user_id
