"""Conditional requests (RFC 9110, 13): the reader says which version of the file it already has."""

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from baobab.tools.files.schemas import Conditions

HEADERS = {"if_range": "if-range", "if_none_match": "if-none-match", "if_modified_since": "if-modified-since"}
"""The headers from which a tool reads the arguments of `Conditions`."""


@dataclass(frozen=True, slots=True)
class Version:
    """The present version of a file.

    tag: its ETag, a strong one. modified_at: when it was last changed.
    """

    tag: str
    modified_at: datetime

    @property
    def headers(self) -> dict[str, str]:
        return {"etag": self.tag, "last_modified": format_datetime(self._second, usegmt=True)}

    def is_known(self, conditions: Conditions) -> bool:
        """Returns whether the reader has this version. If the reader sends a tag, the time does not matter."""
        if tags := conditions.get("if_none_match", ""):
            # Compared weakly: a proxy that compresses makes a weak tag of ours.
            known_tags = [tag.strip().removeprefix("W/") for tag in tags.split(",")]
            return self.tag in known_tags or known_tags == ["*"]
        since = _parse_date(conditions.get("if_modified_since", ""))
        return since is not None and self._second <= since

    def continues(self, conditions: Conditions) -> bool:
        """Returns whether a part of this version continues what the reader already has."""
        validator = conditions.get("if_range", "")
        return validator in ("", self.tag) or _parse_date(validator) == self._second

    @property
    def _second(self) -> datetime:
        return self.modified_at.astimezone(UTC).replace(microsecond=0)


def _parse_date(text: str) -> datetime | None:
    """Returns the time of a header. None for an invalid one, which RFC 9110 lets servers ignore."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
