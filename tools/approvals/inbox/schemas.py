"""The schemas of the inbox's arguments and answers."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

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


class TakenBack(TypedDict):
    taken_back: Annotated[list[HeldDecision], Field(description="The decisions that do not count.")]
    too_late: Annotated[list[HeldDecision], Field(description="Those that count already, or were over.")]


class Snoozed(TypedDict):
    snoozed: list[Snooze]
