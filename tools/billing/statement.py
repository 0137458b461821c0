"""GET /dashboard/billing and GET /dashboard/plans: what there is, in US dollars."""

from datetime import UTC, datetime, time
from typing import Annotated

from pydantic import Field
from sqlalchemy import select
from typing_extensions import TypedDict

from baobab.tools.billing.budgets import BudgetRow, told
from baobab.tools.billing.ledger.account import Account
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.ledger.errors import NoCreditAccount
from baobab.tools.billing.ledger.terms import TERMS
from baobab.tools.billing.standing import OrganizationId, acting_in
from baobab.tools.billing.toolset import billing
from baobab.tools.core.auth.access import EVERYBODY, AnyAccount
from baobab.tools.core.auth.tables import organisations
from baobab.tools.core.call import Call
from baobab.tools.core.credits import Used
from baobab.tools.core.money import usd
from baobab.tools.core.plan_room import cap_of_apps
from baobab.tools.core.plans import PLANS
from baobab.tools.core.toolset import Mcp


class Caps(TypedDict):
    """What an organisation and each of its apps may use; null is no cap."""

    requestsPerMinute: int | None
    kvOpsPerSecond: int | None
    kvBytes: int | None
    kvKeys: int | None
    maxProjects: int | None
    maxAgents: int | None
    maxAgentBytes: int | None
    maxToolServers: int | None
    maxApiKeys: int | None
    maxModelServers: int | None
    maxAuditRows: int | None


class PlanLimits(Caps):
    maxAiCreditsUsd: Annotated[float | None, Field(description="The allowance; null is no cap.")]
    aiCreditsLifetime: Annotated[bool, Field(description="Whether it is given once instead of each month.")]


class OwnPlan(TypedDict):
    id: str
    name: str
    limits: PlanLimits


class Plan(Caps):
    id: str
    name: str
    aiCreditsUsd: Annotated[float | None, Field(description="The allowance; null is no cap.")]
    aiCreditsLifetime: Annotated[bool, Field(description="Whether it is given once instead of each month.")]


class Plans(TypedDict):
    """The smallest first."""

    plans: list[Plan]


class CreditsTold(TypedDict):
    """What there is; null is without a cap."""

    monthly_allowance_usd: Annotated[float | None, Field(description="What is left of the allowance.")]
    topup_usd: Annotated[float, Field(description="What is left of the top-ups; below zero it is owed.")]
    total_usd: float | None
    reserved_usd: Annotated[float, Field(description="Set aside for calls under way.")]
    available_usd: Annotated[float | None, Field(description="What is above the floor and not reserved.")]
    floor_usd: Annotated[float, Field(description="How far below zero the total may go.")]


class AiCredits(TypedDict):
    """The allowance: this month's, or what is given once."""

    included: float | None
    used: float
    remaining: float | None


class Consumption(TypedDict):
    requests: int
    tokens: int
    cost: float


class CountedUsage(TypedDict):
    ai_credits_usd: Annotated[float, Field(description="Charged since `billingPeriodStart`.")]


class Billing(TypedDict):
    """What an organisation has and spends."""

    organization_id: str
    plan: OwnPlan
    credits: CreditsTold
    aiCredits: AiCredits
    usage: CountedUsage
    platform: Annotated[Consumption, Field(description="Charged calls of the period.")]
    byok: Annotated[Consumption, Field(description="Calls with a provider's key of your own: counted, not charged.")]
    billingPeriodStart: Annotated[datetime, Field(description="The first of the month, UTC.")]
    budgets: list[BudgetRow]


@billing.tool(
    "GET /billing",
    access=AnyAccount(),
    effect="read",
    raises=(NoCreditAccount,),
    mcp=Mcp(
        keywords=(
            "balance, remaining credits, how much money is left, account standing, subscription, current plan; "
            "Guthaben, Kontostand, Tarif; "
            "saldo, crédito restante, plan actual"
        )
    ),
)
async def billing_get(call: Call, org_id: OrganizationId | None = None) -> Billing:
    """Read what an organisation has and has spent: plan, credits, this month's use, budgets.

    Amounts are US dollars; null is without a cap.
    """
    organisation = await acting_in(call, org_id)
    credits_ = call.services.part(Credits)
    account = await credits_.account(organisation)
    used = await credits_.usage(organisation, account.month, call.now.date(), by=())
    budgets = await credits_.budgets(organisation)
    # Last: from here on the call holds a connection, and whoever holds one must not wait for another.
    plan = (await call.execute(select(organisations.c.plan).where(organisations.c.id == organisation))).scalar_one()
    apps = await cap_of_apps(call.execute, organisation, PLANS[plan])
    platform, byok = (_consumption([one for one in used if one.byok is own]) for own in (False, True))
    return {
        "organization_id": organisation,
        "plan": _own_plan(plan, account, apps),
        "credits": _credits(account),
        "aiCredits": _ai_credits(account),
        "usage": {"ai_credits_usd": platform["cost"]},
        "platform": platform,
        "byok": byok,
        "billingPeriodStart": datetime.combine(account.month, time(), UTC),
        "budgets": [told(budget) for budget in budgets],
    }


@billing.tool(
    "GET /plans",
    access=EVERYBODY,
    effect="read",
    mcp=Mcp(
        keywords=(
            "prices, pricing, tiers, subscriptions, upgrade, what does it cost, limits and quotas of each plan; "
            "Tarife, Preise; "
            "planes, precios, tarifas"
        )
    ),
)
async def billing_plans(call: Call) -> Plans:  # noqa: ARG001 - every handler takes its call
    """List the plans: the credits that each gives, and what each app may use.

    Null is no cap.
    """
    return {
        "plans": [
            {
                "id": name,
                "name": name.capitalize(),
                "aiCreditsUsd": _or_uncapped(TERMS[name].allowance),
                "aiCreditsLifetime": TERMS[name].once,
                **_caps(name),
            }
            for name in PLANS
        ]
    }


def _caps(plan: str) -> Caps:
    caps = PLANS[plan]
    return {
        "requestsPerMinute": caps.requests_per_minute,
        "kvOpsPerSecond": caps.kv_ops_per_second,
        "kvBytes": caps.kv_bytes,
        "kvKeys": caps.kv_keys,
        "maxProjects": caps.apps,
        "maxAgents": caps.agents,
        "maxAgentBytes": caps.agent_bytes,
        "maxToolServers": caps.tool_servers,
        "maxApiKeys": caps.api_keys,
        "maxModelServers": caps.model_servers,
        "maxAuditRows": caps.audit_rows,
    }


def _own_plan(plan: str, account: Account, apps: int | None) -> OwnPlan:
    """The organisation's own terms, where the operator has set some, instead of the plan's."""
    return {
        "id": plan,
        "name": plan.capitalize(),
        "limits": {
            **_caps(plan),
            "maxProjects": apps,
            "maxAiCreditsUsd": _or_uncapped(account.terms.allowance),
            "aiCreditsLifetime": account.terms.once,
        },
    }


def _credits(account: Account) -> CreditsTold:
    balance = account.balance
    return {
        "monthly_allowance_usd": _or_uncapped(balance.allowance),
        "topup_usd": usd(balance.credits),
        "total_usd": _or_uncapped(balance.total),
        "reserved_usd": usd(balance.reserved),
        "available_usd": None if balance.available is None else usd(max(0, balance.available)),
        "floor_usd": usd(balance.floor),
    }


def _ai_credits(account: Account) -> AiCredits:
    return {
        "included": _or_uncapped(account.terms.allowance),
        "used": usd(account.once_used if account.terms.once else account.used),
        "remaining": _or_uncapped(account.balance.allowance),
    }


def _consumption(used: list[Used]) -> Consumption:
    return {
        "requests": sum(one.requests for one in used),
        "tokens": sum(one.prompt_tokens + one.completion_tokens for one in used),
        "cost": usd(sum(one.cost for one in used)),
    }


def _or_uncapped(nanos: int | None) -> float | None:
    return None if nanos is None else usd(nanos)
