"""The toolset of organisations, and the fields that its tools share."""

from typing import Annotated

from pydantic import Field

from baobab.tools.core import AppId, Toolset, Uuid
from baobab.tools.core.app_clones import never_clone

organisations = Toolset(
    "organisations",
    "Organisations, their members and invitations.",
    base="/v1",
    clones=never_clone("the people of the other organisation", "members", "invitations"),
)

AppIds = Annotated[list[AppId], Field(min_length=1, max_length=100)]
"""The only apps about whose calls an approver decides."""
OrganizationId = Annotated[Uuid, Field(description="The organisation.")]
