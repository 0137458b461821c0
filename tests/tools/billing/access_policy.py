"""The callers that may call the tools of billing, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from baobab.tools.billing.ledger.credits import Credits
from tests.tools.access import ADMINS_OF_ORGANISATIONS, ORGANISATIONS, PUBLIC, Caller, World

POLICY = {
    "billing_get": ORGANISATIONS,
    "billing_plans": PUBLIC,
    "billing_usage": ORGANISATIONS,
    "billing_budgets": ORGANISATIONS,
    "billing_set_budget": ADMINS_OF_ORGANISATIONS,
    "billing_delete_budget": ADMINS_OF_ORGANISATIONS,
}


async def for_billing_get(world: World, caller: Caller) -> dict[str, Any]:
    return {"org_id": world.org}


async def for_billing_usage(world: World, caller: Caller) -> dict[str, Any]:
    return {"org_id": world.org}


async def for_billing_budgets(world: World, caller: Caller) -> dict[str, Any]:
    return {"org_id": world.org}


async def for_billing_set_budget(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_billing_delete_budget(world, caller), "most_usd": "1.50"}


async def for_billing_delete_budget(world: World, caller: Caller) -> dict[str, Any]:
    await world.baobab.application.services.part(Credits).set_budget(world.org, "app", world.app, "day", 1)
    return {"subject": "app", "subject_id": world.app, "period": "day", "org_id": world.org}
