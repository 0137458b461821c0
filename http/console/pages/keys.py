"""/console/keys: creates and revokes API keys, and sets the tools that they must ask before calling."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from baobab.http.console.app_page import name_app, refuse_field
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

_POLICIES = {
    "none": "never, except for the rules below",
    "destructive": "before it destroys something",
    "external": "before anything leaves this server or is destroyed",
    "write": "before every change",
}
_ASKS = {"always": "always ask", "never": "never ask", "by_effect": "default"}


async def show_keys(visit: Visit) -> Context:
    organisations: list[dict[str, Any]] = []
    for organisation in await visit.list_organisations("api_keys_list"):
        page = await visit.call("api_keys_list", organization_id=organisation["id"])
        budgets = (await visit.call("billing_budgets", org_id=organisation["id"]))["budgets"]
        for key in page["keys"]:
            key["budgets"] = [
                budget for budget in budgets if (budget["subject"], budget["subject_id"]) == ("key", key["id"])
            ]
        apps = (await visit.call("apps_list", org_id=organisation["id"], limit=100))["apps"]
        scope_names = {"*": "all scopes", **{f"app:{app['id']}": f"only in {name_app(app)}" for app in apps}}
        organisations.append({**organisation, "keys": page["keys"], "apps": apps, "scope_names": scope_names})
    toolsets = sorted({tool.toolset.name for tool in visit.registry.tools.values() if tool.toolset.name != "console"})
    date_values = {"today": visit.now.date().isoformat()}
    return {**date_values, "organisations": organisations, "policies": _POLICIES, "asks": _ASKS, "toolsets": toolsets}


async def create(visit: Visit) -> Context:
    """Creates a key. Only the answer to this form shows it."""
    form = visit.form
    arguments: dict[str, Any] = {"name": form.get("name", "").strip(), "approval": form.get("approval", "none")}
    arguments["read_only"] = "read_only" in form
    if app_id := form.get("app_id", "").strip():
        arguments |= {"key_scope": "app", "target_app_id": app_id}
    else:
        arguments["organization_id"] = form.get("of", "")
    if last_day := form.get("last_day", "").strip():
        arguments["ends_at"] = _find_end(last_day)
    if most := form.get("most_usd", "").strip():
        arguments["budget"] = {"period": form.get("period", ""), "most_usd": most}
    if toolsets := [name.removeprefix("toolset.") for name in form if name.startswith("toolset.")]:
        arguments["toolsets"] = toolsets
    return {"title": "A new key", "made": await visit.call("api_keys_create", **arguments)}


def _find_end(last_day: str) -> str:
    """Returns the last instant of a day, in UTC."""
    try:
        day = date.fromisoformat(last_day)
    except ValueError as exc:
        raise refuse_field("last_day", "Type a date, such as 2027-01-31.") from exc
    return datetime.combine(day + timedelta(days=1), time(), UTC).isoformat()


async def revoke(visit: Visit) -> str:
    await visit.call("api_keys_revoke", visit.form.get("of"), key_id=visit.parts["id"])
    return "/keys"


async def set_ask(visit: Visit) -> str:
    """Sets whether the key must ask before it calls a tool."""
    tool, ask = visit.form.get("tool", "").strip(), visit.form.get("ask", "")
    if not tool:
        raise refuse_field("tool", "Name a tool, such as kv_delete.")
    await visit.call("api_keys_ask", visit.form.get("of"), key_id=visit.parts["id"], tool_name=tool, ask=ask)
    return "/keys"


PAGES = (
    Page(
        "/keys",
        "API keys",
        "keys.html",
        show_keys,
        menu="API keys",
        tool="api_keys_list",
        group="Organisation",
        icon="key-round",
        rank=30,
    ),
)
FORMS = (
    Form("/keys/create", create, "key_made.html"),
    Form("/keys/{id}/revoke", revoke),
    Form("/keys/{id}/asks", set_ask),
)
