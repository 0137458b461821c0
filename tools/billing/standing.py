"""Standing: the organisation that a call is about, and whether the caller has the role for it."""

from typing import Annotated

from pydantic import Field

from baobab.tools.core import Call, Role, Uuid, require_role
from baobab.tools.core.auth.membership import resolve_organisation_id

OrganizationId = Annotated[Uuid, Field(description="Another organisation that you belong to; else the caller's own.")]


async def resolve_organisation(call: Call, org_id: str | None, required_role: Role = "member") -> str:
    """Returns the organisation that the call names, else the caller's. Raises Forbidden without the role in it.

    The directory is asked: what only looks at credits needs no transaction of its own.
    """
    organisation = await resolve_organisation_id(call, org_id)
    require_role(await call.services.directory.role(organisation, call.account.account_id), required_role)
    call.audit.organisation_id = organisation
    return organisation
