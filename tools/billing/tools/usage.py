"""GET /dashboard/usage: what was used and what it cost, by day, app, key and model."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from baobab.tools.billing.errors import TooMuchUsage
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.ledger.usage import UsagePart
from baobab.tools.billing.schemas import UsageRow, UsageRows
from baobab.tools.billing.standing import OrganizationId, resolve_organisation
from baobab.tools.billing.toolset import billing
from baobab.tools.core import AnyAccount, AppId, Call, Text
from baobab.tools.core.days import Day, first_and_last
from baobab.tools.core.limits.credits import UsageLine
from baobab.tools.core.limits.money import usd

_MOST_DAYS = timedelta(days=366)
MOST_ROWS = 10_000

Part = Literal["day", "app", "key", "model"]
Parts = Annotated[list[Part], Field(min_length=1, max_length=4)]
KeyId = Annotated[str, Text(36, min_length=1)]

_COLUMNS: dict[Part, UsagePart] = {"day": "day", "app": "app_id", "key": "key_id", "model": "model"}


@billing.tool(
    "GET /usage",
    access=AnyAccount(),
    effect="read",
    raises=(TooMuchUsage,),
)
async def billing_usage(
    call: Call,
    startDate: Day | None = None,
    endDate: Day | None = None,
    app_id: AppId | None = None,
    key_id: KeyId | None = None,
    by: Parts = ["day"],  # noqa: B006 - it is never changed
    org_id: OrganizationId | None = None,
) -> UsageRows:
    """Read what an organisation's calls have used and cost, in US dollars. A call counts when it has ended.

    startDate: the first day (UTC); 30 days before the last when left out.
    endDate: the last day, at most 366 days later; today when left out.
    app_id: only what was used in this app.
    key_id: only what was used with this key.
    by: what to group by: `day`, `app`, `key`, `model`; separate several with commas.
    """
    organisation = await resolve_organisation(call, org_id)
    first, last = first_and_last(startDate, endDate, call.now.date())
    if last - first > _MOST_DAYS:
        raise TooMuchUsage(f"More than {_MOST_DAYS.days} days are too many for one answer.")
    parts = [_COLUMNS[part] for part in by]
    credits_ = call.services.part(Credits)
    used_rows = await credits_.usage(
        organisation, first, last, app_id=app_id, key_id=key_id, by=parts, most=MOST_ROWS + 1
    )
    if len(used_rows) > MOST_ROWS:
        raise TooMuchUsage(details={"limit": MOST_ROWS})
    rows = [_row(line, parts) for line in used_rows]
    return {"organization_id": organisation, "startDate": first, "endDate": last, "usage": rows}


def _row(line: UsageLine, parts: Sequence[UsagePart]) -> UsageRow:
    row: UsageRow = {
        "byok": line.byok,
        "requests": line.requests,
        "prompt_tokens": line.prompt_tokens,
        "completion_tokens": line.completion_tokens,
        "cost_usd": usd(line.cost),
    }
    for part in parts:
        # The table has an empty text where there was no app or no key.
        row[part] = getattr(line, part) or None
    return row
