"""The toolset of organisations, and the fields that its tools share."""

from typing import Annotated

from pydantic import Field

from baobab.tools.core.toolset import Toolset
from baobab.tools.core.types import Uuid

organisations = Toolset("organisations", "Organisations, their members and invitations.", base="/v1")

OrganizationId = Annotated[Uuid, Field(description="The organisation.")]
