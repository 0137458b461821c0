"""/console/usage: the cost of calls to models, over time and by model."""

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any
from urllib.parse import quote

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

_SPANS = (7, 30, 90)
_WIDTH, _HEIGHT, _MARGIN = 720, 140, 4


async def show_usage(visit: Visit) -> Context:
    """Shows the usage of the organisation that the query names, or else of the first one; of one app, if the query
    names one.
    """
    organisations = await visit.list_organisations("billing_get")
    organisation_id = visit.query.get("of") or organisations[0]["id"]
    days = int(visit.query["days"]) if visit.query.get("days") in {str(span) for span in _SPANS} else 30
    today = visit.now.date()
    first = today - timedelta(days=days - 1)
    filters: dict[str, Any] = {"org_id": organisation_id, "startDate": first.isoformat(), "endDate": today.isoformat()}
    if app_id := visit.query.get("app"):
        filters["app_id"] = app_id
    by_day = (await visit.call("billing_usage", by=["day"], **filters))["usage"]
    by_model = (await visit.call("billing_usage", by=["model"], **filters))["usage"]
    billing = await visit.call("billing_get", org_id=organisation_id)
    apps = await visit.call("apps_list", org_id=organisation_id, limit=100)
    names = {app["id"]: app["name"] for app in apps["apps"]}
    if any(budget["subject"] == "key" for budget in billing["budgets"]):
        keys_page = await visit.call("api_keys_list", organization_id=organisation_id)
        names |= {key["id"]: key["name"] for key in keys_page["keys"]}
    return {
        "organisations": organisations,
        "names": names,
        "of": organisation_id,
        "days": days,
        "spans": _SPANS,
        "app_id": app_id or "",
        "apps": apps["apps"],
        "charts": [
            {"name": "Cost", **draw_bars(first, days, by_day, "cost_usd")},
            {"name": "Calls", **draw_bars(first, days, by_day, "requests")},
        ],
        "by_day": _sum_days(by_day),
        "models": sorted(by_model, key=lambda row: -row["cost_usd"]),
        "billing": billing,
        "total": sum(row["cost_usd"] for row in by_day if not row["byok"]),
        "requests": sum(row["requests"] for row in by_day),
    }


def _sum_days(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the usage of each day, newest first: the numbers that the charts show."""
    days: dict[date, dict[str, Any]] = {}
    names = ("requests", "prompt_tokens", "completion_tokens", "cost_usd")
    for row in rows:
        total = days.setdefault(row["day"], {"day": row["day"], **dict.fromkeys(names, 0)})
        for name in names:
            total[name] += row[name]
    return sorted(days.values(), key=lambda total: total["day"], reverse=True)


def draw_bars(first: date, days: int, rows: Iterable[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Returns the bars of a chart of the field `name` of each day, in units of the drawing."""
    amounts = dict.fromkeys((first + timedelta(days=number) for number in range(days)), 0.0)
    for row in rows:
        if row["day"] in amounts:
            amounts[row["day"]] += row[name]
    most = max(amounts.values())
    step = (_WIDTH - 2 * _MARGIN) / days
    bars = [
        {
            "x": round(_MARGIN + number * step, 1),
            "width": round(step * 0.8, 1),
            "height": round((_HEIGHT - 2 * _MARGIN) * amount / most, 1) if most else 0,
            "day": day,
            "amount": amount,
        }
        for number, (day, amount) in enumerate(amounts.items())
    ]
    return {"width": _WIDTH, "height": _HEIGHT, "bars": bars, "most": most}


async def set_budget(visit: Visit) -> str:
    form, of = visit.form, visit.form.get("of", "")
    budget = {name: form.get(name, "") for name in ("subject", "subject_id", "period")}
    await visit.call("billing_set_budget", **budget, most_usd=form.get("most_usd", "").strip(), org_id=of)
    return f"/usage?of={quote(of, safe='')}"


async def delete_budget(visit: Visit) -> str:
    of = visit.form.get("of", "")
    budget = {name: visit.form.get(name, "") for name in ("subject", "subject_id", "period")}
    await visit.call("billing_delete_budget", **budget, org_id=of)
    return f"/usage?of={quote(of, safe='')}"


PAGES = (
    Page("/usage", "Usage", "usage.html", show_usage, menu="Usage", tool="billing_get", icon="chart-column", rank=20),
)
FORMS = (Form("/usage/budgets/set", set_budget), Form("/usage/budgets/delete", delete_budget))
