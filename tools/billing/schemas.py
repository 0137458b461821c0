"""The results of the tools of billing."""

from datetime import date, datetime
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.billing.ledger.budgets import BudgetPeriod

Kind = Literal["app", "key"]


class BudgetRow(TypedDict):
    """A budget as it stands today, in US dollars."""

    subject: Kind
    subject_id: str
    period: BudgetPeriod
    limit_usd: float
    spent_usd: float
    reserved_usd: Annotated[float, Field(description="Set aside for calls under way.")]
    resets_at: datetime


class Budgets(TypedDict):
    """All budgets of the organisation, by subject."""

    budgets: list[BudgetRow]


class BudgetSet(TypedDict):
    budget: BudgetRow


class BudgetDeleted(TypedDict):
    deleted: Literal[True]


class Caps(TypedDict):
    """The most that an organisation and each of its apps may use; null is no cap."""

    requestsPerMinute: int | None
    kvOpsPerSecond: int | None
    kvBytes: int | None
    kvKeys: int | None
    tableBytes: int | None
    maxProjects: int | None
    maxAgents: int | None
    maxAgentBytes: int | None
    maxToolServers: int | None
    maxApiKeys: int | None
    maxModelServers: int | None
    maxAuditRows: int | None
    memoryBytes: int | None


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
    """The credits that there are. Null means no cap."""

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
    """The credits, the usage and the limits of an organisation."""

    organization_id: str
    plan: OwnPlan
    credits: CreditsTold
    aiCredits: AiCredits
    usage: CountedUsage
    platform: Annotated[Consumption, Field(description="Charged calls of the period.")]
    byok: Annotated[Consumption, Field(description="Calls with a provider's key of your own: counted, not charged.")]
    billingPeriodStart: Annotated[datetime, Field(description="The first of the month, UTC.")]
    budgets: list[BudgetRow]


class UsageRow(TypedDict):
    """One sum; of day, app, key and model those that were asked for."""

    day: NotRequired[date]
    app_id: NotRequired[Annotated[str | None, Field(description="Null where no app was involved.")]]
    key_id: NotRequired[Annotated[str | None, Field(description="Null where no key was involved.")]]
    model: NotRequired[str]
    byok: Annotated[bool, Field(description="Called with a provider's key of your own: its cost was not charged.")]
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float


class UsageRows(TypedDict):
    """The sums, in the order of the parts."""

    organization_id: str
    startDate: date
    endDate: date
    usage: list[UsageRow]
