"""The toolset of organisations, and the fields that its tools share."""

from typing import Annotated

from pydantic import Field

from baobab.tools.core.toolset import Toolset
from baobab.tools.core.types import AppId, Uuid

organisations = Toolset("organisations", "Organisations, their members and invitations.", base="/v1")

AppIds = Annotated[list[AppId], Field(min_length=1, max_length=100)]
"""The only apps about whose calls an approver decides."""
OrganizationId = Annotated[Uuid, Field(description="The organisation.")]
