"""What the tools of the system answer with."""

from typing_extensions import TypedDict


class FoundSection(TypedDict):
    name: str
    section: str
    title: str
    excerpt: str
