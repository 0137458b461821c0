"""The apps that can be cloned, as callers may see them. One query decides, so the hidden is like the absent."""

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from baobab.storage.sql.database import Execute
from baobab.tools.core import Account, Caller
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.auth.tables import apps, members, organisations

OFFERED = (apps.c.visibility == "public", apps.c.listed)
"""The conditions for apps that the list of templates shows."""
_NOBODY = ""


def select_source(app_id: str, caller: Caller, *, only_listed: bool) -> Select[Any]:
    """Selects an app that is offered to everybody, or is of an organisation of the caller."""
    account_id = caller.account_id if isinstance(caller, Account) else _NOBODY
    pinned_organisation = caller.organisation_id if isinstance(caller, Account) and caller.key_id is not None else None
    return _select_source(app_id, account_id, pinned_organisation, only_listed=only_listed)


def select_source_of_job(row: Any) -> Select[Any]:
    """Selects the source of a clone job, if whoever asked for the clone may still clone it."""
    pinned_organisation = row.maker["organisation_id"] if row.maker.get("key_id") else None
    return _select_source(row.source_app_id, row.account_id, pinned_organisation, only_listed=False)


def _select_source(app_id: str, account_id: str, pinned_organisation: str | None, *, only_listed: bool) -> Select[Any]:
    is_member = and_(
        members.c.organisation_id == apps.c.organisation_id,
        members.c.account_id == account_id,
        members.c.role != APPROVER,
    )
    is_own: ColumnElement[bool] = members.c.account_id.is_not(None)
    if pinned_organisation is not None:
        is_own = and_(is_own, apps.c.organisation_id == pinned_organisation)
    is_offered = and_(*(OFFERED if only_listed else OFFERED[:1]))
    joined_tables = apps.join(organisations, organisations.c.id == apps.c.organisation_id).outerjoin(members, is_member)
    columns = (apps, organisations.c.name.label("owner_display_name"))
    return select(*columns).select_from(joined_tables).where(apps.c.id == app_id, or_(is_offered, is_own))


def select_listed(q: str | None, regions: list[str] | None) -> Select[Any]:
    """Selects the templates that everybody may see. q: how their names begin. regions: of which; None for all."""
    columns = (apps, organisations.c.name.label("owner_display_name"))
    query = select(*columns).join(organisations, organisations.c.id == apps.c.organisation_id).where(*OFFERED)
    if q:
        query = query.where(apps.c.name.startswith(q.lower(), autoescape=True))
    return query if regions is None else query.where(apps.c.region.in_(regions))


async def list_forks(execute: Execute, app_id: str, limit: int) -> list[Any]:
    """Lists the newest clones of an app that are templates themselves: the others are nobody's business."""
    query = select_listed(None, None).where(apps.c.template_source_app_id == app_id)
    return list((await execute(query.order_by(apps.c.created_at.desc(), apps.c.id).limit(limit))).all())


async def count_rows(execute: Execute, query: Select[Any]) -> int:
    return int((await execute(select(func.count()).select_from(query.subquery()))).scalar_one())
