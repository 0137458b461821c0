"""`baobab plan`: shows or changes the plan of an organisation."""

from sqlalchemy import select, update

from baobab.cli.work.credits import find_organisation
from baobab.tools.core.auth.tables import organisations
from baobab.tools.core.limits.plans import PLANS
from baobab.tools.core.services import Services


async def show_plan(services: Services, organisation: str) -> list[str]:
    """Returns the plan of an organisation and its caps, as lines for people. Raises NoCreditAccount."""
    return await _plan_lines(services, await find_organisation(services, organisation))


async def change_plan(services: Services, organisation: str, plan: str) -> list[str]:
    """Gives an organisation another plan and returns it as `show_plan` does. Existing apps and data stay. Raises
    NoCreditAccount.
    """
    organisation_id = await find_organisation(services, organisation)
    async with services.database.writing_unit(lock=organisation_id) as unit:
        is_organisation = organisations.c.id == organisation_id
        before = (await unit.execute(select(organisations.c.plan).where(is_organisation))).scalar_one()
        if before != plan:
            await unit.execute(update(organisations).where(is_organisation).values(plan=plan))
            await services.notices.publish(unit, "organisation", organisation_id)
            data = {"plan": plan, "before": before}
            await services.audit_log.record_operator(
                unit, "organization.plan", organisation_id, "organisation", organisation_id, data
            )
    return await _plan_lines(services, organisation_id)


async def _plan_lines(services: Services, organisation: str) -> list[str]:
    query = select(organisations.c.plan).where(organisations.c.id == organisation)
    async with services.database.reading() as connection:
        plan = PLANS[(await connection.execute(query)).scalar_one()]
    apps = "as many apps as it likes" if plan.apps is None else f"{plan.apps} apps"
    return [f"organisation {organisation}", f"plan {plan.name}: {apps}; docs/settings.md has the rest"]
