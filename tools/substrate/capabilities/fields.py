"""The types of fields in payloads, with their bounds."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from baobab.tools.core import AppId, Email, JsonObject, NameText, Text, Uuid
from baobab.tools.core.types import Moment, encode_json

__all__ = ["AppId", "Email", "Uuid"]

DecisionKind = Literal["operational", "strategic", "mission", "vision", "principle", "policy_decision"]
Salience = Literal["ambient", "normal", "archival"]
CommitmentStatus = Literal["proposed", "tentative", "confirmed", "fulfilled", "expired", "broken"]
EntityType = Literal["person", "company", "fund", "workspace", "team", "project", "event", "agent", "self"]

Title = Annotated[str, Text(500, min_length=1)]
LongText = Annotated[str, Text(20_000)]
Description = Annotated[str, Text(20_000, min_length=1)]
Content = Annotated[str, Text(500_000)]
Reason = Annotated[str, Text(2000, min_length=1)]
Party = Annotated[str, Text(500, min_length=1)]
DisplayName = Annotated[str, NameText(500, min_length=1)]
Word = Annotated[str, Text(100, min_length=1)]
Unit = Annotated[str, Text(50, min_length=1)]
Url = Annotated[str, Text(2000, pattern=r"^https?://[^\s]+$")]
Amount = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
When = Moment

ActionId = Annotated[str, StringConstraints(pattern=r"^act_[0-9A-Z]{26}$", max_length=30)]
DecisionId = Annotated[str, StringConstraints(pattern=r"^dec_[0-9A-Z]{26}$", max_length=30)]
CommitmentId = Annotated[str, StringConstraints(pattern=r"^com_[0-9A-Z]{26}$", max_length=30)]
LearningId = Annotated[str, StringConstraints(pattern=r"^lrn_[0-9A-Z]{26}$", max_length=30)]
MemoryId = Annotated[str, StringConstraints(pattern=r"^(dec|lrn)_[0-9A-Z]{26}$", max_length=30)]
EntityId = Annotated[str, StringConstraints(pattern=r"^ent_[A-Za-z0-9_-]{1,60}$", max_length=64)]
ArtifactId = Annotated[str, StringConstraints(pattern=r"^art_[A-Za-z0-9_-]{1,60}$", max_length=64)]


MOST_ATTRIBUTES = 65_536
"""Bytes of all attributes of a row, as JSON."""


def _check_size(value: dict[str, Any]) -> dict[str, Any]:
    if len(encode_json(value)) > MOST_ATTRIBUTES:
        raise ValueError(f"must have at most {MOST_ATTRIBUTES} bytes as JSON")
    return value


Attributes = Annotated[JsonObject, AfterValidator(_check_size)]
CanonicalKeys = Annotated[
    dict[
        Annotated[str, Text(100, min_length=1, pattern=r"^[A-Za-z0-9_.:-]+$")],
        Annotated[str, Text(300, min_length=1)],
    ],
    Field(max_length=20),
]
"""Names of an entity in other systems, such as `{"crm": "4711"}`."""

ExternalId = Annotated[str, Text(300, min_length=1)]
EntityIds = Annotated[list[EntityId], Field(max_length=200)]
ActionIds = Annotated[list[ActionId], Field(min_length=1, max_length=200)]
MemoryIds = Annotated[list[MemoryId], Field(min_length=1, max_length=50)]
ForgottenIds = Annotated[
    list[Annotated[str, StringConstraints(pattern=r"^(ent|dec|com|lrn|art)_[A-Za-z0-9_-]{1,60}$", max_length=64)]],
    Field(min_length=1, max_length=100),
]
Tags = Annotated[list[Word], Field(max_length=100)]
Most = Annotated[int, Field(ge=0, le=1_000_000)]
MOST_PRINCIPLES = 1000
"""In force at a time: the policy reads no more."""
