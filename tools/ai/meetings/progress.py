"""What became of a bot: a function of all that was heard about it, so that order and repetition do not matter."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from baobab.runtime.meetings.provider import (
    STATUSES,
    TERMINAL,
    ArtifactState,
    BotOrder,
    BotReport,
    Status,
    StatusChange,
)
from baobab.runtime.meetings.reasons import is_transient
from baobab.tools.ai.meetings.schemas import Row

_LAST_STATES = ("ready", "failed")
MOST_CHANGES = 500
_MOST_ATTEMPTS = 3
"""How many bots are sent for one request, if they fail before anybody let them in and a second may succeed."""


@dataclass(frozen=True, slots=True)
class BotProgress:
    """The state of a bot as its changes tell it."""

    status: Status
    sub_code: str | None
    started_at: datetime | None
    completed_at: datetime | None
    was_in_call: bool

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL


def build_order(row: Row) -> BotOrder:
    """Returns what the bot of a row was asked to do."""
    return BotOrder(
        id=row.id,
        meeting_url=row.meeting_url,
        bot_name=row.bot_name,
        recording=row.recording,
        transcript=row.transcript,
        automatic_leave=row.automatic_leave,
        metadata=row.metadata,
        created_at=row.created_at,
        attempt=row.attempt,
        left_at=row.left_at,
    )


def read_changes(stored: Iterable[Mapping[str, Any]]) -> list[StatusChange]:
    """Returns the changes of a row."""
    return [
        StatusChange(change["code"], datetime.fromisoformat(change["at"]), change["status"], change["sub_code"])
        for change in stored
    ]


def store_changes(changes: Iterable[StatusChange]) -> list[dict[str, Any]]:
    """Returns changes as a row holds them."""
    return [
        {"code": change.code, "at": change.at.isoformat(), "status": change.status, "sub_code": change.sub_code}
        for change in changes
    ]


def merge_changes(known: Iterable[StatusChange], heard: Iterable[StatusChange]) -> list[StatusChange]:
    """Returns all changes in the order in which they happened, each once. Where two say the same, the one that says
    why counts.
    """
    by_id: dict[str, StatusChange] = {}
    for change in (*known, *heard):
        if change.id not in by_id or by_id[change.id].sub_code is None:
            by_id[change.id] = change
    return sorted(by_id.values(), key=_order)[:MOST_CHANGES]


def derive(changes: Sequence[StatusChange]) -> BotProgress:
    """Returns the state after some changes, which may be in any order. Unknown codes change nothing."""
    states = sorted((change for change in changes if change.status is not None), key=_order)
    last = next((change for change in reversed(states) if change.status in TERMINAL), states[-1] if states else None)
    first_end = next((change for change in states if change.status == "ended" or change.status in TERMINAL), None)
    # The provider says why with the end of the call, and perhaps not again with the last state.
    reasons = [change.sub_code for change in states if change.sub_code and change.status in ("ended", *TERMINAL)]
    return BotProgress(
        status=(last.status if last else None) or "joining",
        sub_code=(last.sub_code if last and last.sub_code else None) or (reasons[-1] if reasons else None),
        started_at=next((change.at for change in states if change.status == "recording"), None),
        completed_at=first_end.at if first_end else None,
        was_in_call=any(change.status in ("in_call", "recording") for change in states),
    )


def may_try_again(row: Row, progress: BotProgress) -> bool:
    """Returns whether another bot is sent: the last one failed before it was in the call, for a reason that passes."""
    failed_outside = progress.status == "fatal" and not progress.was_in_call
    return failed_outside and is_transient(progress.sub_code) and row.attempt + 1 < _MOST_ATTEMPTS and not row.left_at


def compute_values(row: Row, heard: Sequence[StatusChange], report: BotReport | None = None) -> dict[str, Any]:
    """Returns the columns of a row after something was heard of its bot. Of one that is over, only artifacts change.

    report: all that the provider says now, if it was asked.
    """
    changes = merge_changes(read_changes(row.changes), heard)
    progress = derive(changes)
    values: dict[str, Any] = {"changes": store_changes(changes)}
    if report is not None:
        values["recording_state"] = advance(row.recording_state, report.recording.state)
        values["transcript_state"] = advance(row.transcript_state, report.transcript.state)
        values["participants"] = list(dict.fromkeys([*row.participants, *report.participants]))[:MOST_CHANGES]
    if row.status in TERMINAL:
        return values
    values |= {
        "status": progress.status,
        "sub_code": progress.sub_code,
        "started_at": progress.started_at,
        "completed_at": progress.completed_at,
    }
    if progress.is_over:
        values["seconds"] = measure(progress, report)
    return values


def measure(progress: BotProgress, report: BotReport | None) -> int:
    """Returns how many seconds a bot that is over has recorded, as the provider counts them, else from its states."""
    if report is not None and report.recorded_seconds is not None:
        return report.recorded_seconds
    if progress.started_at is None or progress.completed_at is None:
        return 0
    return max(0, round((progress.completed_at - progress.started_at).total_seconds()))


def advance(known: ArtifactState, heard: ArtifactState) -> ArtifactState:
    """Returns the state of an artifact, which never goes back: an old report may come late."""
    return known if known in _LAST_STATES or heard == "none" else heard


def _order(change: StatusChange) -> tuple[datetime, int, str]:
    return change.at, STATUSES.index(change.status) if change.status else -1, change.code
