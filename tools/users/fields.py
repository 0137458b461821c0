"""Arguments that several tools of users take."""

from typing import Annotated

from pydantic import Field

from baobab.tools.core import NameText, Secret, Text

DisplayName = Annotated[str, NameText(200), Field(description="What the app calls the user.")]
RoleName = Annotated[
    str,
    Text(60, pattern=r"^[a-z][a-z0-9_-]*$"),
    Field(description="A role of your own choosing: rules and agents ask for it by name.", examples=["editor"]),
]

Link = Annotated[str, Secret(100, min_length=1)]
"""The secret part of an address in a mail."""
