"""The schemas of the inbox's arguments and answers."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core.effects import Effect
from baobab.tools.core.types import Json

HeldState = Literal["held", "due", "counted", "taken_back", "dropped", "refused"]


class HeldProblem(TypedDict):
    code: str
    message: str


class HeldDecision(TypedDict):
    """A decision that counts when it is due, unless it is taken back or another one is first."""

    id: str
    approval_id: str
    status: Literal["approved", "rejected"]
    state: Annotated[
        HeldState,
        Field(
            description="`held`: it can be taken back; `due`: it is being made; `counted`; `taken_back`; `dropped`: "
            "another decision was first; `refused`: it could not be made, and the call still waits."
        ),
    ]
    problem: Annotated[HeldProblem | None, Field(description="Why it was refused.")]
    created_at: datetime
    due_at: datetime
    finished_at: datetime | None


class DecisionMade(TypedDict):
    held: Annotated[HeldDecision | None, Field(description="Null if the decision counts already.")]


class Snooze(TypedDict):
    approval_id: str
    until: datetime


class InboxState(TypedDict):
    """What a person has done with calls that wait."""

    held: Annotated[list[HeldDecision], Field(description="Decisions that are held, and those of the last hour.")]
    snoozed: Annotated[list[Snooze], Field(description="Calls that the person wants to see later.")]


class WaitingPlace(TypedDict):
    """A call that waits for a person, in brief: what its place in a list follows from."""

    id: str
    tool: str
    effect: Effect
    app_id: str | None
    agent: str | None
    node: str | None
    run_as: Annotated[Literal["app"] | None, Field(description="Whose right the call uses, as in an approval.")]
    tainted: bool | None
    approvers: Annotated[Json, Field(description="Who decides, as in an approval.")]
    asker_kind: Annotated[str, Field(description="What asks: `account`, `key`, `user` or `visitor`.")]
    by: Annotated[str, Field(description="Who asks, in a word or two.")]
    created_at: datetime
    expires_at: datetime


class WaitingPlaces(TypedDict):
    calls: Annotated[list[WaitingPlace], Field(description="Those that the person may decide about, oldest first.")]


class TakenBack(TypedDict):
    taken_back: Annotated[list[HeldDecision], Field(description="The decisions that do not count.")]
    too_late: Annotated[list[HeldDecision], Field(description="Those that count already, or were over.")]


class Snoozed(TypedDict):
    snoozed: list[Snooze]
