"""The fields that several tools of API keys take, and their results."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import NameText, Uuid
from baobab.tools.core.effects import Ask, Policy
from baobab.tools.core.limits.money import Usd

KeyName = Annotated[str, NameText(100, min_length=1)]
KeyId = Annotated[Uuid, Field(description="The key's id, as the list shows it.")]


class KeyBudget(TypedDict):
    """The most that a key may spend. op:billing_budgets reads what it has spent."""

    period: Annotated[Literal["day", "month"], Field(description="A day, or a calendar month, both in UTC.")]
    most_usd: Usd


class CreatedKey(TypedDict):
    """A new key, with its text."""

    key: Annotated[str, Field(description="The key. Shown once; only its digest is kept.")]
    key_id: str
    prefix: Annotated[str, Field(description="The first 12 characters, by which lists show it.")]
    name: str
    scopes: list[str]
    toolsets: Annotated[list[str] | None, Field(description="The toolsets that it opens; null is all.")]
    read_only: bool
    approval: Annotated[Policy, Field(description="The effect from which on its calls wait for a person's approval.")]
    ends_at: Annotated[datetime | None, Field(description="When it ends, with the keys that it made; null: never.")]
    created_at: datetime


class ListedKey(TypedDict):
    """A live key, without its text."""

    id: str
    prefix: str
    name: str
    scopes: list[str]
    toolsets: list[str] | None
    read_only: bool
    approval: Policy
    asks: Annotated[
        dict[str, Ask],
        Field(description="The tools whose calls always or never wait for a person, whatever `approval` says."),
    ]
    only_app_id: Annotated[
        str | None, Field(description="The only app that it opens; null for all that its account may.")
    ]
    ends_at: Annotated[datetime | None, Field(description="When it expires, with the keys that it made.")]
    account_id: Annotated[str, Field(description="The account that made it.")]
    made_by: Annotated[
        str | None, Field(description="The id of the key that it was made with; null where a person was signed in.")
    ]
    created_at: datetime
    last_used_at: datetime | None


class Keys(TypedDict):
    """Live keys, the newest first."""

    keys: list[ListedKey]


class Revoked(TypedDict):
    """The result of a revocation."""

    revoked: Literal[True]
    keys_revoked: Annotated[int, Field(description="How many keys were revoked, counting those that it had made.")]
