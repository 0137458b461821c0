"""A text that a call has read, as runs and approvals name it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MOST_TEXTS = 10
"""How many of the texts that one call has read are named."""


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text that a call has read.

    kind: `document`, `row`, `key` or `file`. name: by which people know it. place: where it is, such as its table.
    key: of a row. user_id: the user whose text it is; None if that is not known.
    """

    kind: str
    name: str
    is_own: bool
    place: str | None = None
    key: str | None = None
    user_id: str | None = None

    @property
    def as_json(self) -> dict[str, Any]:
        fields = {
            "kind": self.kind,
            "name": self.name[:120],
            "place": self.place,
            "key": self.key,
            "user": self.user_id,
        }
        return {"own": self.is_own, **{name: value for name, value in fields.items() if value is not None}}


def shorten_texts(texts: Iterable[ReadText]) -> list[Mapping[str, Any]]:
    """Returns the texts as events keep them: those from outside first, at most `MOST_TEXTS`."""
    return [text.as_json for text in sorted(texts, key=lambda text: text.is_own)[:MOST_TEXTS]]
