"""Who is calling. A door turns a credential into one of these; access objects ask them; audit rows name them."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Caller:
    """The base; `actor` is what audit rows say of the kind."""

    actor: ClassVar[str] = "anonymous"

    @property
    def actor_id(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class Anonymous(Caller):
    """No credential, or the public anon key of one app."""

    app_id: str | None = None


@dataclass(frozen=True, slots=True)
class Account(Caller):
    """A platform account, by token or by a key with the scope `*`; a key is pinned to its organisation."""

    actor: ClassVar[str] = "platform_user"

    account_id: str
    organisation_id: str
    key_id: str | None = None

    @property
    def actor_id(self) -> str | None:
        return self.account_id


@dataclass(frozen=True, slots=True)
class AppKey(Caller):
    """A key of one app (its function key too): everything within that app."""

    actor: ClassVar[str] = "api_key"

    app_id: str
    key_id: str
    account_id: str | None = None

    @property
    def actor_id(self) -> str | None:
        return self.key_id


@dataclass(frozen=True, slots=True)
class ScopedKey(Caller):
    """A key that opens a few operations only: `ai:gateway` or `substrate`."""

    actor: ClassVar[str] = "api_key"

    account_id: str
    organisation_id: str
    key_id: str
    scopes: frozenset[str]

    @property
    def actor_id(self) -> str | None:
        return self.key_id


@dataclass(frozen=True, slots=True)
class EndUser(Caller):
    """A user of one app, by its token, or by the app's own key that acts for the user (`key_id` names it then)."""

    actor: ClassVar[str] = "app_user"

    app_id: str
    user_id: str
    role: str = "user"
    key_id: str | None = None

    @property
    def actor_id(self) -> str | None:
        return self.user_id
