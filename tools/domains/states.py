"""The states of a custom domain, and what a check makes of them.

pending -> verifying -> active, and failed: after a week without the records, or three days after an active name has
lost its TXT record. Only the holder of a name is served at it, and only one app holds it. An app that adds a name gets
a token that no record can say yet, so that nobody takes over what another has released.
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update

from baobab.storage.sql.database import Unit
from baobab.tools.core import Services
from baobab.tools.core.auth.tables import custom_domains
from baobab.tools.domains.findings import Findings

PENDING, VERIFYING, ACTIVE, FAILED = "pending", "verifying", "active", "failed"
GRACE = timedelta(days=3)
"""How long a name without its record is still served."""
PATIENCE = timedelta(days=7)
"""How long a new name is looked for."""
_DAILY, _HOURLY, _SOON = timedelta(days=1), timedelta(hours=1), timedelta(minutes=10)
_columns = custom_domains.c


async def find_domain(execute: Any, app_id: str, domain_id: str) -> Any:
    """Returns the row of a custom domain; None if the app has no such one."""
    query = select(custom_domains).where(_columns.app_id == app_id, _columns.id == domain_id)
    return (await execute(query)).first()


async def find_holder(execute: Any, hostname: str) -> str | None:
    """Returns the id of the app that holds a name; None if no app does."""
    holder: str | None = (await execute(select(_columns.app_id).where(_columns.held_name == hostname))).scalar()
    return holder


async def record_findings(
    unit: Unit, services: Services, row: Any, findings: Findings, *, is_asked: bool = False
) -> None:
    """Writes what a check of a domain has found, unless it has been removed meanwhile.

    unit: of the installation's database, with the app's lock. is_asked: whether somebody asked for the check, who then
    waits anew.
    """
    # Two apps may have proven one name at the same moment: the second one waits here, and finds the first.
    await unit.hold(f"domain:{row.hostname}")
    query = select(custom_domains).where(_columns.id == row.id, _columns.token == row.token)
    current_row: Any = (await unit.execute(query)).first()
    if current_row is None:
        return
    now = services.clock.now()
    if current_row.status == ACTIVE:
        values = _judge_active(current_row, findings, now)
    else:
        holder = await find_holder(unit.execute, row.hostname)
        asked_at = now if is_asked and current_row.status == FAILED else current_row.asked_at
        values = _judge_waiting(current_row, findings, now, asked_at, is_taken=holder not in (None, row.app_id))
    await unit.execute(update(custom_domains).where(_columns.id == row.id).values(checked_at=now, **values))
    if values.get("status", current_row.status) != current_row.status:
        await services.notices.publish(unit, "app", row.app_id)
        if ACTIVE in (values["status"], current_row.status):
            app = await services.directory.app(row.app_id)
            data = {"hostname": row.hostname, "from": current_row.status, "to": values["status"]}
            await services.audit_log.record_operator(
                unit, "domain.state", app.organisation_id, "domain", row.id, data, app_id=row.app_id, by_itself=True
            )


def _judge_active(row: Any, findings: Findings, now: datetime) -> dict[str, Any]:
    if not findings.is_lost:
        is_well = findings.is_proven and findings.leads_here
        next_check_at = now + (_DAILY if is_well else _HOURLY)
        # A silent resolver does not say that a lost record is back.
        lost_at = None if findings.is_seen else row.lost_at
        return {"problems": list(findings.problems), "lost_at": lost_at, "next_check_at": next_check_at}
    lost_at = row.lost_at or now
    ends_at = lost_at + GRACE
    if now < ends_at:
        sentence = f"Unless it is back by {_name_time(ends_at)}, the app is no longer served at this name."
        problems = [*findings.problems, sentence]
        return {"problems": problems, "lost_at": lost_at, "next_check_at": min(now + _HOURLY, ends_at)}
    sentence = f"It has been missing since {_name_time(lost_at)}, so the app is no longer served at this name."
    return {
        "status": FAILED,
        "held_name": None,
        "problems": [*findings.problems, sentence],
        "lost_at": None,
        "next_check_at": None,
    }


def _judge_waiting(
    row: Any, findings: Findings, now: datetime, asked_at: datetime, *, is_taken: bool
) -> dict[str, Any]:
    problems = list(findings.problems)
    if not problems and not is_taken:
        held = {"status": ACTIVE, "held_name": row.hostname, "verified_at": now}
        return {**held, "problems": [], "lost_at": None, "next_check_at": now + _DAILY}
    if not problems:
        problems.append(
            "The records are right, but another app holds this name until it removes it or loses its record."
        )
    if now >= asked_at + PATIENCE:
        problems.append("It was looked for during a week. Set the records, and have them checked again.")
        return {"status": FAILED, "problems": problems, "next_check_at": None}
    next_check_at = now + (_SOON if now < asked_at + _DAILY else _HOURLY)
    status = VERIFYING if findings.is_begun else PENDING
    return {"status": status, "problems": problems, "asked_at": asked_at, "next_check_at": next_check_at}


def _name_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
