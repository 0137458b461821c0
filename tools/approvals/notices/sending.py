"""Turns calls that wait into messages: whom to notify, in which message, and whether it arrived."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select, update

from baobab.storage.sql.database import Execute, Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.approvals.naming import ApprovalLabels
from baobab.tools.approvals.notices.channels import EMAIL, PUSH, REPEATABLE, open_target, send_message
from baobab.tools.approvals.notices.messages import Notice, WaitingCall
from baobab.tools.approvals.notices.rows import has_channel
from baobab.tools.approvals.notices.schedule import find_due, find_pause
from baobab.tools.approvals.notices.tables import approval_notices, notice_channels, notice_messages, notice_settings
from baobab.tools.approvals.reading_texts import render_warning
from baobab.tools.approvals.service import ApprovalService, service_of
from baobab.tools.approvals.tables import approvals
from baobab.tools.core import Account, Job, RetryLater, Role, Services
from baobab.tools.core.auth.deciders import ADMIN, Decider, PendingDecision
from baobab.tools.core.auth.membership import read_app_ids
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.auth.tables import members
from baobab.tools.core.call import Tool
from baobab.tools.core.guard.titles import join_parts
from baobab.tools.core.mail import Mail


def may_decide(approval: Any, member: Any, role: Role | None = None) -> bool:
    """Returns whether a member may decide about a call. member: a row of `members`; role: instead of the one there."""
    caller = Account(member.account_id, approval.organisation_id)
    return Decider(caller, role or member.role, read_app_ids(member)).may(PendingDecision.of_approval(approval))


def is_told(approval: Any, member: Any, which: str) -> bool:
    """Returns whether a member gets a notice of a call.

    which: `all` that they may decide; or `mine`, without what they may decide only because they run the organisation.
    """
    if not may_decide(approval, member):
        return False
    decision = PendingDecision.of_approval(approval)
    if which == "all" or decision.approvers.of == ADMIN or member.role == APPROVER:
        return True
    return may_decide(approval, member, "member")


async def list_recipients(execute: Execute, approval: Any) -> list[Any]:
    """Lists the settings of those who are told of a call: members who have set up notices and may decide about it.

    Who has no channel (`has_channel`) is told nothing, and may still pass the call on to somebody else.
    """
    columns = (notice_settings, members.c.role, members.c.app_ids, has_channel().label("has_channel"))
    query = select(*columns).join(members, members.c.account_id == notice_settings.c.account_id)
    rows = await execute(query.where(members.c.organisation_id == approval.organisation_id))
    return [row for row in rows if is_told(approval, row, row.which)]


async def load_memberships(execute: Execute, account_id: str) -> dict[str, Any]:
    """Returns the rows of an account's memberships by organisation."""
    rows = await execute(select(members).where(members.c.account_id == account_id))
    return {row.organisation_id: row for row in rows}


SEND, ESCALATE, DELIVER = "notices_send", "notices_escalate", "notices_deliver"
"""The kinds of jobs (jobs.py)."""
PAUSES = (10.0, 60.0, 300.0, 1800.0, 3600.0)
"""Seconds from an attempt that failed to the next; after the last of them, the message is given up."""
_MOST_AT_ONCE = 500


async def plan_notices(job: Job, approval_id: str) -> None:
    """Writes down who is told of a call that waits, and when."""
    async with job.writing(last=True, lock=None) as unit:
        approval: Any = (await unit.execute(select(approvals).where(approvals.c.id == approval_id))).first()
        if approval is None or approval.status != "pending":
            return
        for row in await list_recipients(unit.execute, approval):
            if row.has_channel:
                await _add_notice(job.services, unit, approval, row)
            if row.escalate_to is not None:
                arguments = {"approval_id": approval_id, "account_id": row.account_id}
                job_id = f"escalate:{approval_id}:{row.account_id}"
                delay = row.escalate_minutes * 60.0
                tenant = approval.organisation_id
                await job.services.jobs.enqueue(unit, ESCALATE, arguments, job_id=job_id, delay=delay, tenant=tenant)


async def escalate_notice(job: Job, approval_id: str, account_id: str) -> None:
    """Tells another member of a call about which nobody has decided, as the settings of a person say now."""
    async with job.writing(last=True, lock=None) as unit:
        approval: Any = (await unit.execute(select(approvals).where(approvals.c.id == approval_id))).first()
        escalation_query = select(notice_settings.c.escalate_to).where(notice_settings.c.account_id == account_id)
        other_id = (await unit.execute(escalation_query)).scalar()
        if approval is None or not _waits(approval, job.services) or other_id is None:
            return
        memberships = [await load_memberships(unit.execute, member_id) for member_id in (account_id, other_id)]
        own, other = (memberships_of_one.get(approval.organisation_id) for memberships_of_one in memberships)
        of_other = notice_settings.c.account_id == other_id
        settings = (await unit.execute(select(notice_settings).where(of_other, has_channel()))).first()
        # Members who have left pass nothing on, and nobody gets a notice of a call that they could not decide.
        if own is None or other is None or settings is None or not may_decide(approval, other):
            return
        await _add_notice(job.services, unit, approval, settings, escalated_by=account_id)


async def _add_notice(
    services: Services, unit: Unit, approval: Any, settings: Any, escalated_by: str | None = None
) -> None:
    """Writes down that a person is told of a call, and asks for it; nothing if they are or were told already."""
    now = services.clock.now()
    due_at = find_due(now, settings)
    row = {"approval_id": approval.id, "account_id": settings.account_id, "escalated_by": escalated_by}
    row |= {"organisation_id": approval.organisation_id, "state": "waiting", "due_at": due_at, "created_at": now}
    inserting = build_upsert(unit.database.dialect, approval_notices).on_conflict_do_nothing()
    if not (await unit.execute(inserting.values(row))).rowcount:
        return
    arguments = {"account_id": settings.account_id}
    job_id, delay = f"notices:{approval.id}:{settings.account_id}", (due_at - now).total_seconds()
    tenant = approval.organisation_id
    await services.jobs.enqueue(unit, SEND, arguments, job_id=job_id, delay=delay, tenant=tenant)


async def send_due_notices(job: Job, account_id: str) -> None:
    """Tells a person of all that is due, in one message to each of their channels.

    The notices are marked, the messages written and their delivery asked for in one transaction under the person's
    lock: of two processes, one sends. Raises RetryLater while the person is not to be disturbed.
    """
    services = job.services
    now = services.clock.now()
    async with job.writing(last=True, lock=account_id) as unit:
        of_account = notice_settings.c.account_id == account_id
        settings = (await unit.execute(select(notice_settings).where(of_account).with_for_update())).first()
        due_rows = await _list_due(unit.execute, account_id, now)
        if not due_rows:
            return
        pause = 0.0 if settings is None else find_pause(now, settings)
        if pause:
            raise RetryLater(pause, "sent after the quiet hours, or a minute after the last message")
        recipients = await _choose_recipients(services, unit.execute, settings, due_rows)
        query = select(notice_channels).where(notice_channels.c.account_id == account_id, notice_channels.c.confirmed)
        channels = (await unit.execute(query.order_by(notice_channels.c.created_at))).all() if recipients else []
        for channel in channels:
            await _write_message(job, unit, channel, recipients)
        await _mark(unit.execute, account_id, recipients if channels else [], "told")
        await _mark(
            unit.execute, account_id, [row for row in due_rows if not channels or row not in recipients], "dropped"
        )
        if channels:
            await unit.execute(update(notice_settings).where(of_account).values(last_sent_at=now))


async def _list_due(execute: Execute, account_id: str, now: Any) -> Sequence[Any]:
    is_waiting = (approval_notices.c.account_id == account_id, approval_notices.c.state == "waiting")
    query = (
        select(approvals, approval_notices.c.escalated_by)
        .join(approvals, approvals.c.id == approval_notices.c.approval_id, isouter=True)
        .add_columns(approval_notices.c.approval_id)
        .select_from(approval_notices)
    )
    query = query.where(*is_waiting, approval_notices.c.due_at <= now)
    order = (approval_notices.c.created_at, approval_notices.c.approval_id)
    return (await execute(query.order_by(*order).limit(_MOST_AT_ONCE))).all()


async def _choose_recipients(services: Services, execute: Execute, settings: Any, due_rows: Sequence[Any]) -> list[Any]:
    """Returns the approvals that still wait and that the person may still decide."""
    if settings is None:
        return []
    memberships = await load_memberships(execute, settings.account_id)
    recipients: list[Any] = []
    for row in due_rows:
        member = None if row.id is None else memberships.get(row.organisation_id)
        if member is None or not _waits(row, services):
            continue
        passed_on = row.escalated_by is not None and may_decide(row, member)
        if passed_on or is_told(row, member, settings.which):
            recipients.append(row)
    return recipients


async def _mark(execute: Execute, account_id: str, rows: Sequence[Any], state: str) -> None:
    if rows:
        ids = [row.approval_id for row in rows]
        conditions = (approval_notices.c.account_id == account_id, approval_notices.c.approval_id.in_(ids))
        await execute(update(approval_notices).where(*conditions).values(state=state))


def _waits(approval: Any, services: Services) -> bool:
    return bool(approval.status == "pending" and approval.expires_at > services.clock.now())


async def _write_message(job: Job, unit: Unit, channel: Any, rows: Sequence[Any]) -> None:
    """Writes a message to a channel, and asks for its delivery; a mail goes the way of all mails."""
    services, now = job.services, job.services.clock.now()
    message_id, is_mail = services.ids.uuid(), channel.kind == EMAIL
    row = {"id": message_id, "account_id": channel.account_id, "channel_id": channel.id, "kind": channel.kind}
    row |= {"approval_ids": [each.id for each in rows], "created_at": now, "status": "mailed" if is_mail else "queued"}
    await unit.execute(notice_messages.insert(), row | ({"finished_at": now} if is_mail else {}))
    if not is_mail:
        await services.jobs.enqueue(unit, DELIVER, {"message_id": message_id}, job_id=f"notice:{message_id}")
        return
    calls = await describe_calls(job.registry.tools, services, unit.execute, rows)
    message = Notice(message_id, calls, list_url(services), now)
    values = {"subject": message.subject, "link": message.link}
    values["calls"] = json.dumps({"groups": message.groups, "more": message.more})
    to = open_target(services.vault, channel)["email"]
    await services.mailer.send(
        unit, Mail(to, "waiting_calls", values, expires_at=max(call.expires_at for call in calls))
    )


def list_url(services: Services) -> str:
    return f"{services.options.base_url}/console"


async def describe_calls(
    tools: Mapping[str, Tool], services: Services, execute: Execute, rows: Sequence[Any]
) -> list[WaitingCall]:
    labels, service = ApprovalLabels(tools, services, execute), service_of(services)
    return [
        WaitingCall(
            row.id,
            join_parts(labels.title(row)),
            await labels.asked_by(row),
            await labels.app(row),
            row.tool,
            row.effect,
            row.expires_at,
            service.approval_url(row.id),
            asks=await labels.asks(row),
            excerpt=labels.excerpt(row),
            warning=_find_warning(service, row),
        )
        for row in rows
    ]


def _find_warning(service: ApprovalService, row: Any) -> str | None:
    reading = service.texts.read_reading(row)
    warning = None if reading is None else render_warning(reading, names_sources=True)
    return None if warning is None else warning["fact"]


async def deliver_message(job: Job, message_id: str) -> None:
    """Makes one attempt to deliver a message. Raises RetryLater to make another.

    That an attempt begins is committed before anything is sent. If its process ends in between, a chat is not told
    again, for it would show the message twice; other receivers are, and recognise it.
    """
    services, is_message = job.services, notice_messages.c.id == message_id
    async with job.database.reading() as connection:
        row: Any = (await connection.execute(select(notice_messages).where(is_message))).first()
        if row is None or row.status != "queued":
            return
        of_row = notice_channels.c.id == row.channel_id
        channel: Any = (await connection.execute(select(notice_channels).where(of_row))).first()
        query = select(approvals).where(approvals.c.id.in_(row.approval_ids)).order_by(approvals.c.created_at)
        rows = [each for each in (await connection.execute(query)).all() if _waits(each, services)]
        calls = await describe_calls(job.registry.tools, services, connection.execute, rows)
    now = services.clock.now()
    if channel is None or not calls:
        await _finish(job, message_id, {"status": "dropped"})
        return
    if row.trying_since is not None and channel.kind not in REPEATABLE:
        fault = "Nobody knows whether it arrived: the server ended in the middle."
        await _finish(job, message_id, {"status": "unknown", "error": fault})
        return
    async with job.writing(lock=None) as unit:
        await unit.execute(update(notice_messages).where(is_message).values(trying_since=now))
    outcome = await send_message(services, channel, Notice(message_id, calls, list_url(services), now))
    attempts = row.attempts + 1
    changes: dict[str, Any] = {"attempts": attempts, "error": outcome.fault and outcome.fault[:300]}
    if outcome.fault is None:
        await _finish(job, message_id, changes | {"status": "sent"})
    elif outcome.is_unknown and channel.kind not in REPEATABLE:
        await _finish(job, message_id, changes | {"status": "unknown"})
    elif outcome.is_final or attempts > len(PAUSES):
        # A browser that has cancelled its subscription never uses it again.
        gone_channel_id = channel.id if outcome.is_gone and channel.kind == PUSH else None
        await _finish(job, message_id, changes | {"status": "failed"}, gone_channel_id)
    else:
        async with job.writing(lock=None) as unit:
            await unit.execute(update(notice_messages).where(is_message).values(**changes, trying_since=None))
        raise RetryLater(PAUSES[attempts - 1], str(outcome.fault))


async def _finish(job: Job, message_id: str, changes: Mapping[str, Any], gone_channel_id: str | None = None) -> None:
    """Writes down what became of a message, and ends the job with it. gone_channel_id: a channel to delete."""
    values = {"trying_since": None, "finished_at": job.services.clock.now(), **changes}
    async with job.writing(last=True, lock=None) as unit:
        await unit.execute(update(notice_messages).where(notice_messages.c.id == message_id).values(values))
        if gone_channel_id is not None:
            await unit.execute(delete(notice_channels).where(notice_channels.c.id == gone_channel_id))


async def forget_old(services: Services) -> None:
    """Deletes messages of more than 30 days ago, and notices of calls that are no longer kept."""
    now = services.clock.now()
    async with services.database.writing(lock=None) as connection:
        is_old = notice_messages.c.created_at < now - timedelta(days=30)
        await connection.execute(delete(notice_messages).where(is_old))
        is_past = approval_notices.c.created_at < now - timedelta(days=91)
        await connection.execute(delete(approval_notices).where(is_past))
