"""/console/apps/{app}/kv: the keys of an app, who may read and write them, and the value of one key."""

import json
from urllib.parse import quote

from baobab.http.console.app_page import parse_value, read_app, refuse_field
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import Conflict, NotFound

_SHOWN = 100
_LEVELS = {"deny": "no user", "owner": "the user that it names", "authed": "signed-in users", "public": "anybody"}
PATH = "/apps/{app}/kv"


class ValueChanged(Conflict):
    code = "CONSOLE_VALUE_CHANGED"
    summary = "Somebody has changed this value since the page was opened; nothing has been stored."
    remediation = "Open the key again and change the present value."


async def show_keys(visit: Visit) -> Context:
    app = await read_app(visit)
    prefix = visit.query.get("prefix", "")
    cursor = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    page = await visit.call("kv_scan", app_id=app["id"], prefix=prefix, limit=_SHOWN, **cursor)
    stats = await visit.call("kv_stats", app_id=app["id"])
    following = page["cursor"] if page["cursor"] not in (None, "0") else None
    page_values = {"app": app, "keys": page["keys"], "prefix": prefix, "following": following, "stats": stats}
    page_values["own_text"] = (await visit.call("kv_own_text_list", app_id=app["id"]))["own_text"]
    rules = await visit.call("kv_expose_list", app_id=app["id"])
    return {**page_values, "rules": rules["rules"], "warnings": rules.get("warnings", []), "levels": _LEVELS}


async def show_entry(visit: Visit) -> Context:
    """Shows a value for editing. A key that does not exist can be given a value."""
    app, key = await read_app(visit), visit.query.get("key", "")
    access = (await visit.call("kv_expose_list", app_id=app["id"], key=key))["access"]
    values = {"app": app, "title": key, "key": key, "is_new": False, "saved": "saved" in visit.query, "access": access}
    try:
        # Reading one as a person does restarts no time to live.
        value = (await visit.call("kv_get", app_id=app["id"], key=key, touch=False))["value"]
        seconds_left = (await visit.call("kv_ttl", app_id=app["id"], key=key))["ttl"]
    except NotFound:
        return values | {"is_new": True, "text": "", "expected": "null", "left": None}
    text = json.dumps(value, indent=2, ensure_ascii=True)
    return values | {"text": text, "expected": json.dumps(value, ensure_ascii=True), "left": seconds_left}


async def store(visit: Visit) -> str:
    """Stores a value, unless it has changed since the page was made."""
    app_id, key = visit.parts["app"], visit.form.get("key", "")
    expected_value = parse_value(visit.form.get("expected", "null"), "value")
    value = parse_value(visit.form.get("value", ""), "value")
    if not (await visit.call("kv_cas", app_id=app_id, key=key, expected=expected_value, next=value))["swapped"]:
        raise ValueChanged
    return _entry(app_id, key) + "&saved=1"


async def expire(visit: Visit) -> str:
    app_id, key = visit.parts["app"], visit.form.get("key", "")
    text = visit.form.get("ttl", "").strip()
    if text and not (text.isdecimal() and len(text) < 12):
        raise refuse_field("ttl", "Type a number of seconds, or nothing for never.")
    await visit.call("kv_expire", app_id=app_id, key=key, ttl=int(text) if text else None)
    return _entry(app_id, key) + "&saved=1"


async def delete(visit: Visit) -> str:
    await visit.call("kv_delete", app_id=visit.parts["app"], key=visit.form.get("key", ""))
    return PATH.format(**visit.parts)


async def add_rule(visit: Visit) -> str:
    rule = {name: visit.form.get(name, "").strip() for name in ("pattern", "read", "write")}
    await visit.call("kv_expose", app_id=visit.parts["app"], **rule)
    return f"{PATH.format(**visit.parts)}#rules"


async def delete_rule(visit: Visit) -> str:
    await visit.call("kv_unexpose", app_id=visit.parts["app"], pattern=visit.form.get("pattern", ""))
    return f"{PATH.format(**visit.parts)}#rules"


def _entry(app_id: str, key: str) -> str:
    return f"{PATH.format(app=app_id)}/entry?key={quote(key, safe='')}"


PAGES = (
    Page(PATH, "Keys & values", "kv.html", show_keys, tab="Keys & values", group="Data", icon="key-round", rank=50),
    Page(PATH + "/entry", "Entry", "kv_entry.html", show_entry),
)
FORMS = (
    Form(PATH + "/entry/store", store),
    Form(PATH + "/entry/expire", expire),
    Form(PATH + "/entry/delete", delete),
    Form(PATH + "/rules/add", add_rule),
    Form(PATH + "/rules/delete", delete_rule),
)
