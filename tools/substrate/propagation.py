"""Autopropagation: users of linked apps are mirrored as entities.

Anybody may sign up under any name, so that all of it is marked as strangers' text, an address counts once it is
verified, and no entity that was there before is changed: a person merges the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select

from baobab.tools.core import Job, RetryLater
from baobab.tools.core.auth.tables import apps, organisations
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.errors import MemoryFull
from baobab.tools.substrate.ledger import Ledger, open_ledger
from baobab.tools.substrate.proposals import propose_in

_entities, _keys = tables.entities.c, tables.entity_keys.c


Step = Literal["signed_up", "verified", "deleted"]
JOB = "substrate_mirror_later"
_PAUSE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class UserChange:
    """Describes what happened to a user of an app."""

    app_id: str
    user: Mapping[str, Any]
    event_id: str
    at: datetime
    step: Step


async def mirror_user(job: Job, change: UserChange, *, has_waited: bool = False) -> None:
    """Brings the entity of a user up to date, where the app is linked and wants that.

    While the memory has no room for it, a job of its own waits for some. has_waited: whether this is that job.
    """
    # The organisation may be gone since.
    linked_apps = apps.join(organisations, organisations.c.id == apps.c.substrate_organization_id)
    query = select(organisations.c.id).select_from(linked_apps)
    query = query.where(apps.c.id == change.app_id, apps.c.substrate_autopropagate_users.is_(True))
    async with job.services.database.reading() as connection:
        organisation_id = (await connection.execute(query)).scalar_one_or_none()
    if organisation_id is None:
        return
    async with (
        job.writing(last=True, lock=organisation_id) as unit,
        open_ledger(unit, job.services, organisation_id) as ledger,
    ):
        try:
            await _mirror(ledger, change)
        except MemoryFull as full:
            # Nothing was written yet, since there is no room.
            if has_waited:
                raise RetryLater(_PAUSE_SECONDS, full.message) from full
            await _put_off(ledger, change)


async def _mirror(ledger: Ledger, change: UserChange) -> None:
    unit, organisation_id, app_id, user = ledger.unit, ledger.organisation_id, change.app_id, change.user
    key = {f"app:{app_id}": str(user["id"])}
    proposer = Proposer("agent", f"app:{app_id}", app_id=app_id, from_strangers=True)
    find_mirrored = select(_keys.entity_id).where(
        _keys.organisation_id == organisation_id,
        _keys.name == f"app:{app_id}",
        _keys.value == str(user["id"]),
    )
    entity_id = (await unit.execute(find_mirrored)).scalar()
    if change.step == "deleted":
        # A change that still waits for room would create an entity of a deleted user.
        await ledger.services.jobs.end_all(unit.execute, JOB, _name_waiting(change))
        if entity_id is not None:
            deletion: dict[str, Any] = {"id": entity_id, "attrs_patch": {"deleted_at": change.at.isoformat()}}
            await propose_in(ledger, proposer, "patch_entity", deletion, idempotency_key=f"mirror:{change.event_id}")
        return
    payload: dict[str, Any] = {
        "type": "person",
        "display_name": user.get("display_name") or user.get("email") or f"User {user['id']}",
        "canonical_keys": key,
        "linked_app_id": app_id,
        "linked_app_user_id": str(user["id"]),
    }
    email = user.get("email")
    if change.step == "verified" and email is not None:
        find_holder = select(_entities.id).where(
            _entities.organisation_id == organisation_id,
            _entities.primary_email == email,
            _entities.merged_into.is_(None),
        )
        if (await unit.execute(find_holder)).scalar() in (None, entity_id):
            payload["primary_email"] = email
    await propose_in(ledger, proposer, "upsert_entity", payload, idempotency_key=f"mirror:{change.event_id}")


async def _put_off(ledger: Ledger, change: UserChange) -> None:
    kept_fields = {name: change.user.get(name) for name in ("id", "email", "display_name")}
    arguments = {"app_id": change.app_id, "user": kept_fields, "event_id": change.event_id}
    arguments |= {"at": change.at.isoformat(), "step": change.step}
    prefix = f"{JOB}:deleted:" if change.step == "deleted" else _name_waiting(change)
    await ledger.services.jobs.enqueue(
        ledger.unit, JOB, arguments, job_id=f"{prefix}{change.event_id}", tenant=ledger.organisation_id
    )


def _name_waiting(change: UserChange) -> str:
    """Returns the prefix of the ids of the jobs that wait to mirror a user."""
    return f"{JOB}:{change.app_id}:{change.user['id']}:"
