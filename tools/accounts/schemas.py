"""The results of the tools of accounts."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import Role


class User(TypedDict):
    """An account, as its owner sees it."""

    id: str
    email: str
    name: str
    email_verified: bool
    created_at: datetime


class Organization(TypedDict):
    """An organisation and the account's role in it."""

    id: str
    name: str
    personal: Annotated[bool, Field(description="The account's own, which cannot be deleted or left.")]
    role: Role
    plan: str


class SignedUp(TypedDict):
    """A new account and its personal organisation."""

    user: User
    organization: Organization


class Refreshed(TypedDict):
    """A fresh pair of tokens."""

    token: Annotated[str, Field(description="Access token (JWT) for `Authorization: Bearer`.")]
    expires_in: Annotated[int, Field(description="Lifetime of `token` in seconds.")]
    refresh_token: Annotated[str, Field(description="Good for one use within 7 days.")]
    token_type: Literal["Bearer"]


class SignedIn(Refreshed):
    """Tokens and whose they are."""

    user: User


class SignedOut(TypedDict):
    """The answer of logout."""

    message: str


class Me(TypedDict):
    """The account and where it belongs."""

    user: User
    organizations: list[Organization]
    has_password: Annotated[bool, Field(description="Whether the account can sign in with a password.")]


class Updated(TypedDict):
    """The account as it is now."""

    user: User


class ResetMailed(TypedDict):
    """The answer to a forgotten password; it does not tell whether the address has an account."""

    sends_mail: Annotated[bool, Field(description="Whether this installation sends mail at all.")]


class PasswordReset(TypedDict):
    """The account whose password was set."""

    email: str


class EmailChangeMailed(TypedDict):
    """The address to which a link was mailed."""

    email: str


class EmailChanged(TypedDict):
    """The account's address as it is now."""

    email: str


class AccountDeleted(TypedDict):
    """The account that is gone."""

    deleted: Literal[True]
    id: str
