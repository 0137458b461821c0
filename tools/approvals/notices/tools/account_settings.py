"""/v1/notices: of which calls that wait a person is told, and when."""

from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field
from sqlalchemy import func, select

from baobab.tools.approvals.notices.errors import ScheduleUnclear
from baobab.tools.approvals.notices.rows import DEFAULTS, account_of, describe_channel, save_settings
from baobab.tools.approvals.notices.schemas import Escalation, Notices, NoticesOfMembers, Quiet, Which
from baobab.tools.approvals.notices.tables import notice_channels, notice_settings
from baobab.tools.approvals.notices.toolset import GUARD, PERSON, notices
from baobab.tools.approvals.tables import approvals
from baobab.tools.core import OMITTED, AnyAccount, Audit, Call, Rest
from baobab.tools.core.auth.tables import members

Digest = Annotated[int, Field(ge=0, le=1440)]


@notices.tool("GET /", access=PERSON, effect="read", guard=GUARD)
async def notices_get(call: Call) -> Notices:
    """Read how this account is notified of calls that wait: of which, when and where."""
    return await _read(call)


@notices.tool(
    "PATCH /",
    access=PERSON,
    effect="write",
    raises=(ScheduleUnclear,),
    guard=GUARD,
    audit=Audit("notices.update", category="auth", resource="account"),
    rest=Rest(examples={"digest_minutes": 30}),
)
async def notices_update(
    call: Call,
    which: Which | None = OMITTED,
    digest_minutes: Digest = OMITTED,
    quiet: Quiet | None = OMITTED,
    escalation: Escalation | None = OMITTED,
) -> Notices:
    """Change how this account is notified of calls that wait; what is left out stays.

    which: `mine` for calls of the account's own keys and runs, and those that name it or admins as approvers; `all` for
      all that it may decide about. Null for `mine`.
    digest_minutes: collects the calls of that many minutes in one message; 0 sends at once, at most one a minute.
    quiet: the hours in which nothing is sent; null for none.
    escalation: who is notified of calls that nobody has decided in time, on channels of their own; null for nobody.
    """
    changes: dict[str, Any] = {}
    if which is not OMITTED:
        changes["which"] = which or "mine"
    if digest_minutes is not OMITTED:
        changes["digest_minutes"] = digest_minutes
    if quiet is not OMITTED:
        changes |= _read_quiet(quiet)
    if escalation is not OMITTED:
        changes |= await _read_escalation(call, escalation)
    await save_settings(call, changes)
    return await _read(call)


@notices.tool("GET /members", access=AnyAccount(), effect="read")
async def notices_members(call: Call) -> NoticesOfMembers:
    """List the members of the organisation: whether each is notified of calls that wait, and how many they decided in
    the last 90 days.
    """
    organisation_id = call.account.organisation_id
    channels = (
        select(notice_channels.c.account_id)
        .join(members, members.c.account_id == notice_channels.c.account_id)
        .where(members.c.organisation_id == organisation_id, notice_channels.c.confirmed)
    )
    notified_ids = set((await call.execute(channels)).scalars())
    by_decider = approvals.c.decided_by
    counting = select(by_decider, func.count()).where(approvals.c.organisation_id == organisation_id)
    decided_counts = {row[0]: row[1] for row in await call.execute(counting.group_by(by_decider))}
    ids = select(members.c.account_id).where(members.c.organisation_id == organisation_id)
    member_ids = (await call.execute(ids.order_by(members.c.created_at, members.c.account_id))).scalars()
    return {
        "members": [
            {
                "account_id": member_id,
                "notified": member_id in notified_ids,
                "decided": decided_counts.get(member_id, 0),
            }
            for member_id in member_ids
        ]
    }


async def _read(call: Call) -> Notices:
    of_account = notice_settings.c.account_id == account_of(call)
    row: Any = (await call.execute(select(notice_settings).where(of_account))).first()
    channels_query = select(notice_channels).where(notice_channels.c.account_id == account_of(call))
    channels = (await call.execute(channels_query.order_by(notice_channels.c.created_at, notice_channels.c.id))).all()
    quiet: Quiet | None = None
    escalation: Escalation | None = None
    if row is not None and row.quiet_from is not None:
        quiet = {"begin": row.quiet_from, "end": row.quiet_until, "time_zone": row.time_zone}
    if row is not None and row.escalate_to is not None:
        escalation = {"after_minutes": row.escalate_minutes, "account_id": row.escalate_to}
    return {
        "which": DEFAULTS["which"] if row is None else row.which,
        "digest_minutes": 0 if row is None else row.digest_minutes,
        "quiet": quiet,
        "escalation": escalation,
        "channels": [describe_channel(each) for each in channels],
    }


def _read_quiet(quiet: Quiet | None) -> dict[str, Any]:
    if quiet is None:
        return dict.fromkeys(("quiet_from", "quiet_until", "time_zone"))
    try:
        ZoneInfo(quiet["time_zone"])
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise ScheduleUnclear(f"There is no time zone {quiet['time_zone']}.") from exc
    if quiet["begin"] == quiet["end"]:
        raise ScheduleUnclear("The quiet hours begin and end at the same time.")
    return {"quiet_from": quiet["begin"], "quiet_until": quiet["end"], "time_zone": quiet["time_zone"]}


async def _read_escalation(call: Call, escalation: Escalation | None) -> dict[str, Any]:
    if escalation is None:
        return {"escalate_minutes": None, "escalate_to": None}
    other_id = escalation["account_id"]
    own_organisations = select(members.c.organisation_id).where(members.c.account_id == account_of(call))
    colleague_query = select(members.c.account_id).where(
        members.c.account_id == other_id, members.c.organisation_id.in_(own_organisations)
    )
    if other_id == account_of(call) or (await call.execute(colleague_query)).first() is None:
        raise ScheduleUnclear("Nobody else in your organisations has this account_id.")
    return {"escalate_minutes": escalation["after_minutes"], "escalate_to": other_id}
