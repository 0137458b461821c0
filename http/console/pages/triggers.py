"""/console/apps/{app}/triggers: what starts by itself in an app, when it is due next, and what has become of it."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from baobab.http.console.app_page import parse_object, read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.app_events import HOUR, KEY_CHANGED

PATH = "/apps/{app}/triggers"
ONE = PATH + "/{name}"
_NEW = "/apps/{app}/new-trigger"
_EDITOR = "trigger_edit.html"
_SHOWN = 20
_NOTHING: dict[str, Any] = {
    "name": "",
    "event": "row.inserted",
    "table": None,
    "prefix": None,
    "schedule": None,
    "time_zone": "UTC",
    "catch_up": False,
    "agent": None,
    "webhook": None,
}


async def show_triggers(visit: Visit) -> Context:
    app = await read_app(visit)
    return {"app": app, "triggers": (await visit.call("triggers_list", app_id=app["id"]))["triggers"]}


async def show_trigger(visit: Visit) -> Context:
    app = await read_app(visit)
    names = {"app_id": app["id"], "name": visit.parts["name"]}
    trigger = await visit.call("triggers_get", **names)
    cursor = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    page = await visit.call("triggers_deliveries", **names, limit=_SHOWN, **cursor)
    return {
        "app": app,
        "title": trigger["name"],
        "trigger": trigger,
        "filter": _write(trigger["filter"]),
        "input": _write(trigger["input"]),
        "deliveries": [{**each, "text": _write(each["payload"])} for each in page["deliveries"]],
        "following": page["next_cursor"],
    }


async def show_new(visit: Visit) -> Context:
    return await _show_editor(visit, _NOTHING, filter_text="", input_text="")


async def show_editor(visit: Visit) -> Context:
    trigger = await visit.call("triggers_get", app_id=visit.parts["app"], name=visit.parts["name"])
    page = await _show_editor(
        visit, trigger, filter_text=_write(trigger["filter"]) or "", input_text=_write(trigger["input"]) or ""
    )
    return {**page, "title": f"Edit {trigger['name']}"}


async def _show_editor(visit: Visit, trigger: Mapping[str, Any], *, filter_text: str, input_text: str) -> Context:
    app = await read_app(visit)
    tables = await visit.call("schema_get", app_id=app["id"])
    agents = await visit.call("agents_list", app_id=app["id"])
    return {
        "app": app,
        "trigger": trigger,
        "filter": filter_text,
        "input": input_text,
        "path": (ONE.format(**visit.parts) if "name" in visit.parts else _NEW.format(**visit.parts)) + "/save",
        "events": (await visit.call("triggers_events", app_id=app["id"]))["events"],
        "tables": sorted(tables["schema"]["tables"]),
        "agents": [each["name"] for each in agents["agents"]],
    }


async def save(visit: Visit) -> str | Context:
    """Makes a trigger, or replaces one. Shows the secret of its webhook where that is new."""
    app_id, form = visit.parts["app"], {name: text.strip() for name, text in visit.form.items()}
    name = visit.parts.get("name") or form.get("name", "")
    event = form.get("own_event") or form.get("event", "")
    fields = {field: form.get(field) or None for field in ("table", "schedule", "agent", "webhook")}
    if event != HOUR:
        fields["schedule"] = None
    answer = await visit.call(
        "triggers_set",
        app_id=app_id,
        name=name,
        event=event,
        **fields,
        prefix=form.get("prefix", "") if event == KEY_CHANGED else None,
        filter=parse_object(form.get("filter", ""), "filter"),
        input=parse_object(form.get("input", ""), "input"),
        time_zone=form.get("time_zone") or "UTC",
        catch_up=form.get("catch_up") == "yes",
    )
    if answer["secret"] is None:
        return ONE.format(app=app_id, name=name)
    return {"app": await read_app(visit), "title": name, "name": name, "secret": answer["secret"]}


async def pause(visit: Visit) -> str:
    return await _do(visit, "triggers_pause")


async def resume(visit: Visit) -> str:
    return await _do(visit, "triggers_resume")


async def start_test(visit: Visit) -> str:
    """Starts what the trigger starts, with the example of its event."""
    return await _do(visit, "triggers_test", run=True)


async def send_again(visit: Visit) -> str:
    return await _do(visit, "triggers_send_again", delivery_id=visit.parts["delivery"])


async def delete(visit: Visit) -> str:
    await _do(visit, "triggers_delete")
    return PATH.format(app=visit.parts["app"])


async def _do(visit: Visit, tool: str, **arguments: Any) -> str:
    await visit.call(tool, app_id=visit.parts["app"], name=visit.parts["name"], **arguments)
    return ONE.format(app=visit.parts["app"], name=visit.parts["name"])


def _write(value: Any) -> str | None:
    return None if value is None else to_json(value, indent=2).decode()


PAGES = (
    Page(
        PATH,
        "Triggers",
        "triggers.html",
        show_triggers,
        tab="Triggers",
        tool="triggers_list",
        group="Agents",
        icon="clock",
        rank=30,
    ),
    Page(ONE, "Trigger", "trigger.html", show_trigger),
    Page(ONE + "/edit", "Edit", _EDITOR, show_editor),
    Page(_NEW, "A new trigger", _EDITOR, show_new),
)
FORMS = (
    Form(_NEW + "/save", save, "trigger_secret.html"),
    Form(ONE + "/save", save, "trigger_secret.html"),
    Form(ONE + "/pause", pause),
    Form(ONE + "/resume", resume),
    Form(ONE + "/test", start_test),
    Form(ONE + "/delete", delete),
    Form(ONE + "/deliveries/{delivery}/send-again", send_again),
)
