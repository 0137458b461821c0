"""The results of the tools of organisations."""

from datetime import datetime
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import Role

ChosenApps = Annotated[
    list[str] | None, Field(description="The only apps about whose calls an approver decides; null for all.")
]


class Organization(TypedDict):
    """An organisation and the caller's role in it."""

    id: str
    name: str
    personal: Annotated[bool, Field(description="An account's own: it has one owner and cannot be deleted.")]
    role: Role
    plan: str
    created_at: datetime


def render_organisation(row: Any) -> Organization:
    """Builds the answer from the row of an organisation, which has the caller's role."""
    return cast(Organization, {key: row[key] for key in Organization.__annotations__})


class OneOrganization(Organization):
    """An organisation, and whom its members ask."""

    admins: Annotated[list[str], Field(description="The names of its owners and admins, at most ten, owners first.")]


class Organizations(TypedDict):
    """The organisations of the caller, its own personal one first."""

    organizations: list[Organization]


class OrganizationMember(TypedDict):
    """An account in an organisation."""

    account_id: str
    email: str
    name: str
    role: Role
    app_ids: ChosenApps
    joined_at: datetime
    last_seen_at: Annotated[
        datetime | None, Field(description="When they last signed in or used the console; null for never.")
    ]


class Members(TypedDict):
    """All members, the earliest first."""

    members: list[OrganizationMember]


class Invitation(TypedDict):
    """An open invitation, without its token."""

    id: str
    email: str
    role: Role
    app_ids: ChosenApps
    created_at: datetime
    expires_at: datetime


class Invitations(TypedDict):
    """The open invitations, the earliest first."""

    invitations: list[Invitation]


class Invited(TypedDict):
    """A new invitation with its token."""

    invitation: Invitation
    token: Annotated[str, Field(description="Shown once. Pass it on yourself, unless it was mailed.")]
    link: Annotated[str, Field(description="The page of the console on which it is accepted. Shown once, too.")]
    mailed: Annotated[bool, Field(description="Whether the link goes to the address by mail; false without a server.")]


class InvitationOffer(TypedDict):
    """What an invitation offers, for whoever has its token."""

    status: Annotated[
        Literal["open", "accepted", "expired"], Field(description="Only an open invitation can be accepted.")
    ]
    organization_name: str
    email: Annotated[str, Field(description="The address of the account that may accept it.")]
    has_account: Annotated[bool, Field(description="Whether the address has an account already.")]
    role: Role
    app_ids: ChosenApps
    invited_by: Annotated[str | None, Field(description="The name of whoever invites; null if they have left.")]
    expires_at: datetime


class Joined(TypedDict):
    """The organisation that the caller now belongs to."""

    organization: Organization


class Deleted(TypedDict):
    """The result of a deletion."""

    deleted: Literal[True]
    id: str


class Removed(TypedDict):
    """A member who was removed."""

    removed: Literal[True]
    account_id: str
    keys_revoked: Annotated[int, Field(description="API keys of that account in this organisation, now revoked.")]


class RoleSet(TypedDict):
    """A member's new role."""

    account_id: str
    role: Role
    app_ids: ChosenApps
    keys_revoked: Annotated[int, Field(description="App keys that went with the higher role.")]
