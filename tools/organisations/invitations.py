"""Invitations, each valid for one account, one use and seven days. Only the digests of their tokens are stored."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, select, update

from baobab.storage.secrets import digest_token
from baobab.tools.core import Call, Role
from baobab.tools.core.auth.tables import accounts, invitations, members, organisations
from baobab.tools.organisations.errors import (
    AlreadyMember,
    InvitationNotFound,
    InvitationSpent,
    InvitedAnother,
    OrganisationFull,
)

LIFETIME = timedelta(days=7)
MOST = 100
_KIND = "inv_"


async def create(
    call: Call, organization_id: str, email: str, role: Role, app_ids: Sequence[str] | None
) -> tuple[dict[str, Any], str]:
    """Creates an invitation and returns its row and token. Deletes expired ones and those of the same address."""
    is_member = (
        select(members.c.account_id).join(accounts).where(_here(members, organization_id), accounts.c.email == email)
    )
    if (await call.execute(is_member)).first():
        raise AlreadyMember
    stale = (invitations.c.email == email) | (invitations.c.expires_at <= call.now)
    await call.execute(delete(invitations).where(*_open(organization_id), stale))
    if ((await call.execute(select(func.count()).where(*_open(organization_id)))).scalar() or 0) >= MOST:
        raise OrganisationFull(f"{MOST} invitations are open.", details={"limit": MOST})
    now, token = call.now, _KIND + call.services.ids.secret(40)
    row = {
        "id": call.services.ids.uuid(),
        "organisation_id": organization_id,
        "email": email,
        "role": role,
        "app_ids": app_ids,
        "account_id": call.account.account_id,
        "key_id": call.account.key_id,
        "token_digest": digest_token(token),
        "created_at": now,
        "expires_at": now + LIFETIME,
    }
    await call.execute(insert(invitations), row)
    return row, token


async def list_pending(call: Call, organization_id: str) -> list[Any]:
    query = select(invitations).where(*_open(organization_id), invitations.c.expires_at > call.now)
    return list((await call.execute(query.order_by(invitations.c.created_at, invitations.c.id))).mappings())


async def find(call: Call, organization_id: str, invitation_id: str) -> Any:
    query = select(invitations).where(*_open(organization_id), invitations.c.id == invitation_id)
    row = (await call.execute(query)).first()
    if row is None:
        raise InvitationNotFound
    return row


async def withdraw(call: Call, invitation_id: str) -> None:
    await call.execute(delete(invitations).where(invitations.c.id == invitation_id))


async def withdraw_those_of(call: Call, organization_id: str, account_id: str) -> int:
    """Withdraws the open invitations of an account that lost its role or part of it, and returns their number."""
    # Older rows do not say who invited: it may have been this account.
    by_account = (invitations.c.account_id == account_id) | invitations.c.account_id.is_(None)
    result = await call.execute(delete(invitations).where(*_open(organization_id), by_account))
    return result.rowcount


async def find_offer(call: Call, token: str) -> Any:
    """Returns the row of an invitation with `organisation`, `inviter` and `known_id`, the account of its address."""
    inviter = accounts.alias("inviter")
    further = (organisations.c.name.label("organisation"), inviter.c.name.label("inviter"))
    query = (
        select(invitations, *further, accounts.c.id.label("known_id"))
        .join(organisations, organisations.c.id == invitations.c.organisation_id)
        .join(inviter, inviter.c.id == invitations.c.account_id, isouter=True)
        .join(accounts, accounts.c.email == invitations.c.email, isouter=True)
        .where(invitations.c.token_digest == digest_token(token))
    )
    row = (await call.execute(query)).first()
    if row is None:
        raise InvitationNotFound
    return row


async def accept(call: Call, token: str) -> Any:
    """Accepts an invitation for the caller's account and returns its row."""
    # Locked: of two acceptances at once, the second sees the first.
    query = select(invitations).where(invitations.c.token_digest == digest_token(token)).with_for_update()
    row = (await call.execute(query)).first()
    if row is None:
        raise InvitationNotFound
    own_address = select(accounts.c.email).where(accounts.c.id == call.account.account_id)
    if (await call.execute(own_address)).scalar() != row.email:
        raise InvitedAnother
    if row.accepted_at is not None or row.expires_at <= call.now:
        raise InvitationSpent
    await call.execute(update(invitations).where(invitations.c.id == row.id).values(accepted_at=call.now))
    return row


def _here(table: Any, organization_id: str) -> ColumnElement[bool]:
    condition: ColumnElement[bool] = table.c.organisation_id == organization_id
    return condition


def _open(organization_id: str) -> tuple[ColumnElement[bool], ...]:
    return _here(invitations, organization_id), invitations.c.accepted_at.is_(None)
