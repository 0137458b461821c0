"""/settings: how much an organisation lets its substrate do by itself."""

from typing import Any

from sqlalchemy import select, update

from baobab.tools.core import Call, Guard, Rest
from baobab.tools.core.auth.tables import organisations
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.core.limits.plans import PLANS
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import CALLERS, DECIDERS, organisation_of, require_person
from baobab.tools.substrate.errors import AgentsDoNotDecide
from baobab.tools.substrate.ledger import open_ledger
from baobab.tools.substrate.schemas import Settings
from baobab.tools.substrate.toolset import substrate


@substrate.tool(
    "GET /settings",
    access=CALLERS,
    effect="read",
)
async def substrate_settings(call: Call) -> Settings:
    """Read the settings of the substrate, such as yolo mode, and the bytes that it uses of those of the plan."""
    return await _read_settings(call)


async def _read_settings(call: Call) -> Settings:
    organisation_id = organisation_of(call)
    query = select(tables.settings).where(tables.settings.c.organisation_id == organisation_id)
    row = (await call.execute(query)).first()
    plan = (await call.execute(select(organisations.c.plan).where(organisations.c.id == organisation_id))).scalar_one()
    return {
        "yolo_mode": False if row is None else row.yolo_mode,
        "propose_consolidations": True if row is None else row.propose_consolidations,
        "organization_id": organisation_id,
        "self_entity_id": None if row is None else row.self_entity_id,
        "provisioned_at": None if row is None else row.provisioned_at,
        "updated_at": None if row is None else row.updated_at,
        "used_bytes": 0 if row is None else row.used_bytes or 0,
        "limit_bytes": PLANS[plan].memory_bytes,
    }


@substrate.tool(
    "PUT /settings/yolo",
    access=DECIDERS,
    effect="write",
    raises=(AgentsDoNotDecide,),
    rest=Rest(examples={"yolo_mode": True}),
    guard=Guard(widens={"yolo_mode": whatever_is_given}),
)
async def substrate_set_yolo(call: Call, yolo_mode: bool) -> Settings:
    """Switch yolo mode on or off. While it is on, most of what a person proposes is done without approval.

    yolo_mode: true switches it on. Proposals of agents, apps and rules, and those against a principle, still wait.
    """
    return await _change(call, yolo_mode=yolo_mode)


@substrate.tool(
    "PUT /settings/consolidation",
    access=DECIDERS,
    effect="write",
    raises=(AgentsDoNotDecide,),
    rest=Rest(examples={"propose_consolidations": False}),
)
async def substrate_set_consolidation(call: Call, propose_consolidations: bool) -> Settings:
    """Switch the daily proposals to consolidate duplicate memories on or off. They wait for a person in any case.

    propose_consolidations: whether a job proposes them; it does unless somebody has switched it off.
    """
    return await _change(call, propose_consolidations=propose_consolidations)


async def _change(call: Call, **values: Any) -> Settings:
    require_person(call)
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        in_organisation = tables.settings.c.organisation_id == ledger.organisation_id
        await call.execute(update(tables.settings).where(in_organisation).values(**values, updated_at=call.now))
    return await _read_settings(call)


@substrate.tool(
    "POST /provision",
    access=CALLERS,
    effect="write",
)
async def substrate_provision(call: Call) -> Settings:
    """Set the substrate up, with the entity `self`. The first proposal also does this. Repeating it changes nothing."""
    async with open_ledger(call.unit, call.services, organisation_of(call)):
        pass
    return await _read_settings(call)
