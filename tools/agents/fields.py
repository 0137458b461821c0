"""The fields of requests about runs, each with its bounds and description, for all tools that take it."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from baobab.runtime.agents.spec.bounds import MAX_HELD_DEPTH, is_too_deep
from baobab.tools.core import JsonObject, NotSecret, Secret, Text, Uuid

PAGE = 500
"""The largest number of events in one answer."""

RunId = Annotated[Uuid, Field(description="The run: the `run_id` that its start returned.")]


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    if is_too_deep(value):
        raise ValueError(f"must be nested at most {MAX_HELD_DEPTH} deep")
    return value


ShallowObject = Annotated[JsonObject, AfterValidator(_shallow)]
"""The state from which a fork goes on."""
Input = Annotated[ShallowObject, Field(description="The graph's `input`.", max_length=1000)]
UserId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$", min_length=1, max_length=64)]
"""A user of the app by id or, where the description says so, a visitor by the id that it was given."""
IdempotencyKey = Annotated[
    str,
    Text(128, min_length=1),
    NotSecret("a name of the caller's own"),
    Field(description="identifies the run by this key."),
]
ThreadId = Annotated[
    str,
    Text(128, min_length=1),
    Field(description="the conversation, for nodes that remember."),
]
VisitorId = Annotated[
    str,
    StringConstraints(pattern=r"^vis_[A-Za-z0-9]{40}$", max_length=44),
    Field(
        description="From the answer to the visitor's first start; a secret, for whoever holds it is that visitor.",
        examples=["vis_0123456789abcdef0123456789abcdef01234567"],
    ),
]
WebhookUrl = Annotated[
    str,
    Text(2000),
    StringConstraints(pattern=r"^https?://"),
    Field(description="called when the run ends."),
]
ApprovalToken = Annotated[
    str,
    NotSecret("the id of an approval: who may decide it is asked of the caller"),
    StringConstraints(pattern=r"^appr_[A-Za-z0-9]{1,80}$", max_length=90),
    Field(description="The approval_token of the run_paused event.", examples=["appr_0a1b2c3d"]),
]
Reason = Annotated[str, Text(1000), Field(description="why it is refused; the run gets this text.")]
Seq = Annotated[int, Field(ge=0, le=2**31 - 1, description="only events after this one.")]
PageSize = Annotated[int, Field(ge=1, le=2**31 - 1, description=f"at most {PAGE}; more counts as {PAGE}.")]
LastEventId = Annotated[
    str,
    Text(20),
    Field(description="the `id` of the last event that was received; those after it are sent."),
]
StreamToken = Annotated[str, Secret(100), Field(description="From op:agents_public_stream_token.")]
