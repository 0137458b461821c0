"""Autopropagation: users of linked apps are mirrored as entities.

Anybody may sign up under any name, so that all of it is marked as strangers' text, an address counts once it is
verified, and no entity that was there before is changed: a person merges the two.
"""

from typing import Any

from sqlalchemy import select

from baobab.tools.core.auth.tables import apps, organisations
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import Event
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.ledger import open_ledger
from baobab.tools.substrate.proposals import propose_in

_entities, _keys = tables.entities.c, tables.entity_keys.c


async def mirror_user(job: Job, event: Event, *, is_verified: bool = False, is_deleted: bool = False) -> None:
    """Brings the entity of a user up to date, where the app is linked and wants that."""
    # The organisation may be gone since.
    linked = apps.join(organisations, organisations.c.id == apps.c.substrate_organization_id)
    query = select(organisations.c.id).select_from(linked)
    query = query.where(apps.c.id == event.app_id, apps.c.substrate_autopropagate_users.is_(True))
    async with job.services.database.reading() as connection:
        organisation_id = (await connection.execute(query)).scalar_one_or_none()
    user, app_id = event.data["user"], event.app_id
    if organisation_id is None or app_id is None:
        return
    key = {f"app:{app_id}": str(user["id"])}
    proposer = Proposer("agent", f"app:{app_id}", app_id=app_id, from_strangers=True)
    async with (
        job.writing(last=True, lock=organisation_id) as unit,
        open_ledger(unit, job.services, organisation_id) as ledger,
    ):
        found = select(_keys.entity_id).where(
            _keys.organisation_id == organisation_id,
            _keys.name == f"app:{app_id}",
            _keys.value == str(user["id"]),
        )
        entity_id = (await unit.execute(found)).scalar()
        if is_deleted:
            if entity_id is not None:
                payload: dict[str, Any] = {"id": entity_id, "attrs_patch": {"deleted_at": event.at.isoformat()}}
                await propose_in(ledger, proposer, "patch_entity", payload, idempotency_key=f"mirror:{event.id}")
            return
        payload = {
            "type": "person",
            "display_name": user.get("display_name") or user.get("email") or f"User {user['id']}",
            "canonical_keys": key,
            "linked_app_id": app_id,
            "linked_app_user_id": str(user["id"]),
        }
        email = user.get("email")
        if is_verified and email is not None:
            held = select(_entities.id).where(
                _entities.organisation_id == organisation_id,
                _entities.primary_email == email,
                _entities.merged_into.is_(None),
            )
            if (await unit.execute(held)).scalar() in (None, entity_id):
                payload["primary_email"] = email
        await propose_in(ledger, proposer, "upsert_entity", payload, idempotency_key=f"mirror:{event.id}")
