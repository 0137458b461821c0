"""Who may get an app's mail: somebody whom the app knows, and nobody else in the world."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from sqlalchemy import select

from baobab.tools.core import Call, Text
from baobab.tools.core.auth.tables import accounts, members
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.mail.errors import RecipientRefused

_MOST_FOUND = 200


def _check_listed(value: str) -> str:
    name, _, domain = value.lower().rpartition("@")
    if not domain or "." not in domain or any(character.isspace() for character in value) or "@" in name:
        raise ValueError("must be an address, or a domain with an @ before it, such as @example.com")
    return value.lower()


ListedRecipients = Annotated[
    list[Annotated[str, Text(250, min_length=3), AfterValidator(_check_listed)]],
    Field(max_length=50, description="Addresses, and domains such as `@example.com`.", examples=[["@example.com"]]),
]


@dataclass(frozen=True, slots=True)
class Recipient:
    """Somebody whom an app may mail. name: what people call them; None if it is not known."""

    address: str
    name: str | None

    @property
    def text(self) -> str:
        return self.address if self.name is None else f"{self.name} <{self.address}>"


async def find_recipient(call: Call, to: str, settings: Any) -> Recipient:
    """Returns the recipient that an id or address means. Raises RecipientRefused, and NotFound for an unknown user.

    settings: the row of the app's mail settings, or None.
    """
    if "@" not in to:
        user = (await call.invoke("users_get", app_id=call.require_app().id, user_id=to))["user"]
        return _admit_user(user)
    found_users = await call.invoke("users_list", app_id=call.require_app().id, search=to[:100], limit=_MOST_FOUND)
    user = next((user for user in found_users["users"] if user["email"] == to), None)
    if user is not None and user["email_verified"] and not user["banned_at"]:
        return _admit_user(user)
    member = await _find_member(call, to)
    if member is not None:
        return member
    known_names = (settings.recipients if settings is not None else None) or ()
    if to in known_names or f"@{to.rpartition('@')[2]}" in known_names:
        return Recipient(to, None)
    if user is not None:
        return _admit_user(user)
    raise RecipientRefused


def _admit_user(user: Any) -> Recipient:
    if user["email"] is None:
        raise RecipientRefused("This user has no address.")
    if user["banned_at"]:
        raise RecipientRefused("This user is banned.")
    if not user["email_verified"]:
        # Anybody can sign up with the address of somebody else.
        raise RecipientRefused("This user has not confirmed the address, so it may be somebody else's.")
    return Recipient(user["email"], escape_name(user["display_name"]) if user["display_name"] else None)


async def _find_member(call: Call, address: str) -> Recipient | None:
    query = (
        select(accounts.c.name)
        .join(members, members.c.account_id == accounts.c.id)
        .where(
            members.c.organisation_id == call.require_app().organisation_id,
            accounts.c.email == address,
            accounts.c.email_verified,
        )
    )
    async with call.services.database.reading() as connection:
        row = (await connection.execute(query)).first()
    return None if row is None else Recipient(address, escape_name(row.name) if row.name else None)
