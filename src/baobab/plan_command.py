"""`baobab plan`: which plan an organisation has."""

from sqlalchemy import select, update

from baobab.credit_commands import find_organisation
from baobab.tools.core.auth.tables import organisations
from baobab.tools.core.plans import PLANS
from baobab.tools.core.services import Services


async def show_plan(services: Services, organisation: str) -> list[str]:
    """The plan of an organisation and its caps, in lines for people. NoCreditAccount."""
    return await _plan_lines(services, await find_organisation(services, organisation))


async def change_plan(services: Services, organisation: str, plan: str) -> list[str]:
    """Give an organisation another plan; what it has then. What is there already stays. NoCreditAccount."""
    found = await find_organisation(services, organisation)
    async with services.database.writing_unit() as unit:
        here = organisations.c.id == found
        before = (await unit.execute(select(organisations.c.plan).where(here))).scalar_one()
        if before != plan:
            await unit.execute(update(organisations).where(here).values(plan=plan))
            await services.notices.publish(unit, "organisation", found)
            data = {"plan": plan, "before": before}
            await services.audit_log.record_operator(unit, "organization.plan", found, "organisation", found, data)
    return await _plan_lines(services, found)


async def _plan_lines(services: Services, organisation: str) -> list[str]:
    query = select(organisations.c.plan).where(organisations.c.id == organisation)
    async with services.database.reading() as connection:
        plan = PLANS[(await connection.execute(query)).scalar_one()]
    apps = "as many apps as it likes" if plan.apps is None else f"{plan.apps} apps"
    return [f"organisation {organisation}", f"plan {plan.name}: {apps}; docs/settings.md has the rest"]
