"""The results of the tools of moves."""

from datetime import datetime
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.moves.tables import Step

ReplicaState = Literal["pending", "active", "torn_down"]


class Progress(TypedDict):
    """How much is moved."""

    keys: NotRequired[Annotated[int, Field(description="Of the key-value store.")]]
    bytes: NotRequired[Annotated[int, Field(description="Of the keys and their values.")]]
    rows: NotRequired[Annotated[int, Field(description="Of all tables.")]]
    files: NotRequired[int]
    users: NotRequired[int]
    vectors: NotRequired[Annotated[int, Field(description="Of the documents in collections.")]]


class MoveStarted(TypedDict):
    migration_id: str
    status: Annotated[
        Literal["queued"] | Step, Field(description="`queued`, or with `wait_seconds` the step that was reached.")
    ]
    current_step: NotRequired[Annotated[Step, Field(description="With `wait_seconds`.")]]
    last_error: NotRequired[str | None]
    completed_at: NotRequired[datetime | None]


class MoveReversed(MoveStarted):
    path: Annotated[str, Field(description="Where to read the progress.")]


class Move(TypedDict):
    migration_id: str
    app_id: str
    current_step: Step
    source_region: str
    dest_region: str
    source_replica_state: ReplicaState
    last_error: str | None
    retry_count: int
    created_at: datetime
    step_started_at: datetime
    completed_at: datetime | None
    progress: Progress


class ActiveMove(TypedDict):
    migration: Move | None


class Aborting(TypedDict):
    migration_id: str
    status: Literal["aborting"]


class Replica(TypedDict):
    migration_id: str
    app_id: str
    region: str
    source_region: str
    dest_region: str
    state: ReplicaState
    since: datetime
    completed_at: datetime | None


class Replicas(TypedDict):
    source_replicas: list[Replica]


class TornDown(TypedDict):
    status: Literal["torn_down"]
