"""/console/apps/{app}/functions: the code that runs beside an app's data, its calls, versions and environment."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from baobab.http.console.app_page import parse_value, read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}/functions"
ONE = PATH + "/{name}"
_NEW = "/apps/{app}/new-function"
_VERSION = ONE + "/versions/{number}"
_TEMPLATE = "function.html"
_SHOWN = 30
_FIRST = """// `req` is a Request of the web, `ctx` has the app's data: ctx.db, ctx.kv, ctx.storage, ctx.env, ctx.user.
export default async function (req, ctx) {
  const { name = "you" } = await req.json().catch(() => ({}));
  return Response.json({ hello: name });
}
"""
_STARTS = {
    "http": "a request to its address",
    "cron": "the hours of a schedule",
    "storage_upload": "a file that was stored",
    "webhook": "a signed webhook",
    "websocket": "an event of the realtime channel",
}


async def show_functions(visit: Visit) -> Context:
    app = await read_app(visit)
    functions = (await visit.call("functions_list", app_id=app["id"]))["functions"]
    env = await visit.call("functions_app_env", app_id=app["id"])
    return {"app": app, "functions": functions, "env_keys": env["keys"], "starts": _STARTS}


async def show_function(visit: Visit) -> Context:
    """Shows a function with its last calls. `?level=error` leaves out those that did not fail."""
    app = await read_app(visit)
    names = {"app_id": app["id"], "name": visit.parts["name"]}
    function = await visit.call("functions_get", **names)
    level = "error" if visit.query.get("level") == "error" else "all"
    logs = await visit.call("functions_logs", **names, limit=_SHOWN, level=level)
    return {
        "app": app,
        "title": function["name"],
        "function": function,
        "triggers": [_describe_trigger(each) for each in function["triggers"]],
        "versions": (await visit.call("functions_versions", **names))["versions"],
        "logs": logs["logs"],
        "has_more": logs["hasMore"],
        "level": level,
        "answer": None,
        "tried": {"body": "", "as_user": ""},
    }


async def show_version(visit: Visit) -> Context:
    """Shows what going to a version would change."""
    app = await read_app(visit)
    number = _read_number(visit)
    diff = await visit.call("functions_versions_diff", app_id=app["id"], name=visit.parts["name"], number=number)
    # Without the two lines that name the files.
    rows = [(line[0], line[1:]) if line[:1] in "+-" else (" ", line) for line in diff["diff"].splitlines()[2:]]
    return {"app": app, "title": f"Version {number}", "name": visit.parts["name"], "number": number, "diff": diff} | {
        "rows": rows
    }


async def show_new(visit: Visit) -> Context:
    return {"app": await read_app(visit), "name": "", "code": _FIRST, "path": _NEW.format(**visit.parts)}


async def show_editor(visit: Visit) -> Context:
    app, name = await read_app(visit), visit.parts["name"]
    function = await visit.call("functions_get", app_id=app["id"], name=name)
    path = ONE.format(app=app["id"], name=name)
    return {"app": app, "title": f"Edit {name}", "name": name, "code": function["code"], "path": path}


async def deploy(visit: Visit) -> str:
    """Deploys what was typed: a new function, or a new version of one."""
    name = visit.parts.get("name") or visit.form.get("name", "").strip()
    # Browsers send line ends as CR LF.
    code = visit.form.get("code", "").replace("\r\n", "\n")
    message = {"message": visit.form["message"].strip()} if visit.form.get("message", "").strip() else {}
    await visit.call("functions_deploy", app_id=visit.parts["app"], name=name, code=code, **message)
    return ONE.format(app=visit.parts["app"], name=name)


async def try_function(visit: Visit) -> Context:
    """Calls the function with what was typed, and shows its page with the answer."""
    text, as_user = visit.form.get("body", "").strip(), visit.form.get("as_user", "").strip()
    arguments: dict[str, Any] = {"body": parse_value(text, "body")} if text else {}
    if as_user:
        arguments["as_user"] = as_user
    answer = await visit.call("functions_invoke", app_id=visit.parts["app"], name=visit.parts["name"], **arguments)
    body = answer["body"]
    shown_answer = {**answer, "text": body if isinstance(body, str) else to_json(body, indent=2).decode()}
    return {**await show_function(visit), "answer": shown_answer, "tried": {"body": text, "as_user": as_user}}


async def set_variable(visit: Visit) -> str:
    """Sets a variable, or removes it if nothing was typed: of a function, or of all functions of the app."""
    app_id, name = visit.parts["app"], visit.parts.get("name")
    variables = {visit.form.get("variable", "").strip(): visit.form.get("value") or None}
    if name is None:
        await visit.call("functions_app_env_update", app_id=app_id, envVars=variables)
        return PATH.format(app=app_id)
    await visit.call("functions_env_update", app_id=app_id, name=name, envVars=variables)
    return ONE.format(app=app_id, name=name)


async def set_hosts(visit: Visit) -> str:
    """Sets which hosts the function reaches: those that were typed, or every public one."""
    app_id, name = visit.parts["app"], visit.parts["name"]
    hosts = None if visit.form.get("every") == "true" else visit.form.get("hosts", "").split()
    await visit.call("functions_settings_update", app_id=app_id, name=name, allowed_hosts=hosts)
    return ONE.format(app=app_id, name=name)


async def roll_back(visit: Visit) -> str:
    app_id, name = visit.parts["app"], visit.parts["name"]
    await visit.call("functions_rollback", app_id=app_id, name=name, number=_read_number(visit))
    return ONE.format(app=app_id, name=name)


async def delete(visit: Visit) -> str:
    await visit.call("functions_delete", app_id=visit.parts["app"], name=visit.parts["name"])
    return PATH.format(app=visit.parts["app"])


def _read_number(visit: Visit) -> int:
    text = visit.parts["number"]
    # What is no number is no version, which the tool says.
    return int(text) if text.isdecimal() and len(text) < 10 else 2**31 - 1


def _describe_trigger(trigger: Mapping[str, Any]) -> dict[str, Any]:
    config = {name: value for name, value in trigger["config"].items() if value not in (None, "", [], False)}
    texts = [f"{name} {value if isinstance(value, str) else to_json(value).decode()}" for name, value in config.items()]
    details = ", ".join(texts)
    return {"words": _STARTS[trigger["type"]], "details": details, "enabled": trigger["enabled"]}


PAGES = (
    Page(
        PATH,
        "Functions",
        "functions.html",
        show_functions,
        tab="Functions",
        tool="functions_list",
        group="Agents",
        icon="braces",
        rank=25,
    ),
    Page(ONE, "Function", _TEMPLATE, show_function),
    Page(ONE + "/edit", "Edit", "function_edit.html", show_editor),
    Page(_VERSION, "Version", "function_version.html", show_version),
    Page(_NEW, "A new function", "function_edit.html", show_new),
)
FORMS = (
    Form(PATH + "/env", set_variable),
    Form(_NEW + "/deploy", deploy),
    Form(ONE + "/deploy", deploy),
    Form(ONE + "/try", try_function, _TEMPLATE),
    Form(ONE + "/env", set_variable),
    Form(ONE + "/hosts", set_hosts),
    Form(ONE + "/delete", delete),
    Form(_VERSION + "/rollback", roll_back),
)
