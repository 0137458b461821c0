"""Types of OAuth clients. All clients are public: none has a secret."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core.guard.escaping import is_seen
from baobab.tools.core.types import Text

LONGEST_NAME = 100
MOST_REDIRECTS = 10
NAMELESS = "Unnamed client"


ClientId = Annotated[str, Text(2000, min_length=1), Field(description="The client's id.")]
ClientName = Annotated[str, Text(LONGEST_NAME)]


def readable_name(name: str, otherwise: str) -> str:
    """Returns a name without characters that are invisible or change the direction of text."""
    return "".join(c for c in name if c.isprintable() and is_seen(c)).strip()[:LONGEST_NAME] or otherwise


class Client(TypedDict):
    """A client, as it describes itself."""

    client_id: str
    name: Annotated[str, Field(description="What it calls itself; nobody has checked that.")]
    redirect_uris: list[str]
    document: Annotated[bool, Field(description="Whether the id is the address of its metadata document.")]
