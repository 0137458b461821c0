"""GET /dashboard/billing and GET /dashboard/plans: what there is, in US dollars."""

from datetime import UTC, datetime, time

from sqlalchemy import select

from baobab.tools.billing.ledger.account import Account
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.ledger.errors import NoCreditAccount
from baobab.tools.billing.ledger.terms import TERMS
from baobab.tools.billing.schemas import AiCredits, Billing, Caps, Consumption, CreditsTold, OwnPlan, Plans
from baobab.tools.billing.standing import OrganizationId, resolve_organisation
from baobab.tools.billing.tools.budgets import render_budget
from baobab.tools.billing.toolset import billing
from baobab.tools.core import EVERYBODY, AnyAccount, Call
from baobab.tools.core.auth.tables import organisations
from baobab.tools.core.limits.credits import UsageLine
from baobab.tools.core.limits.money import usd
from baobab.tools.core.limits.plan_room import cap_of_apps
from baobab.tools.core.limits.plans import PLANS


@billing.tool(
    "GET /billing",
    access=AnyAccount(),
    effect="read",
    raises=(NoCreditAccount,),
)
async def billing_get(call: Call, org_id: OrganizationId | None = None) -> Billing:
    """Read what an organisation has and has spent: plan, credits, this month's use, budgets.

    Amounts are US dollars; null means no cap.
    """
    organisation = await resolve_organisation(call, org_id)
    credits_ = call.services.part(Credits)
    account = await credits_.account(organisation)
    usage_lines = await credits_.usage(organisation, account.month, call.now.date(), by=())
    budgets = await credits_.budgets(organisation)
    # Last, because the call then holds a connection, and must not wait for another one while it does.
    plan = (await call.execute(select(organisations.c.plan).where(organisations.c.id == organisation))).scalar_one()
    apps = await cap_of_apps(call.unit, organisation, PLANS[plan])
    platform, byok = (
        _consumption([line for line in usage_lines if line.byok is is_own_key]) for is_own_key in (False, True)
    )
    return {
        "organization_id": organisation,
        "plan": _own_plan(plan, account, apps),
        "credits": _credits(account),
        "aiCredits": _ai_credits(account),
        "usage": {"ai_credits_usd": platform["cost"]},
        "platform": platform,
        "byok": byok,
        "billingPeriodStart": datetime.combine(account.month, time(), UTC),
        "budgets": [render_budget(budget) for budget in budgets],
    }


@billing.tool(
    "GET /plans",
    access=EVERYBODY,
    effect="read",
)
async def billing_plans(call: Call) -> Plans:
    """List the plans: the credits that each gives, and what each app may use.

    Null means no cap.
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
        "tableBytes": caps.table_bytes,
        "maxProjects": caps.apps,
        "maxAgents": caps.agents,
        "maxAgentBytes": caps.agent_bytes,
        "maxToolServers": caps.tool_servers,
        "maxApiKeys": caps.api_keys,
        "maxModelServers": caps.model_servers,
        "maxAuditRows": caps.audit_rows,
        "memoryBytes": caps.memory_bytes,
    }


def _own_plan(plan: str, account: Account, apps: int | None) -> OwnPlan:
    """Returns the organisation's own terms, where the operator has set some, instead of the plan's."""
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
        "reserved_usd": usd(balance.reserved_nanos),
        "available_usd": None if balance.available is None else usd(max(0, balance.available)),
        "floor_usd": usd(balance.floor),
    }


def _ai_credits(account: Account) -> AiCredits:
    return {
        "included": _or_uncapped(account.terms.allowance),
        "used": usd(account.once_used if account.terms.once else account.allowance_used),
        "remaining": _or_uncapped(account.balance.allowance),
    }


def _consumption(lines: list[UsageLine]) -> Consumption:
    return {
        "requests": sum(line.requests for line in lines),
        "tokens": sum(line.prompt_tokens + line.completion_tokens for line in lines),
        "cost": usd(sum(line.cost for line in lines)),
    }


def _or_uncapped(nanos: int | None) -> float | None:
    return None if nanos is None else usd(nanos)
