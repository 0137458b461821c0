"""/console/apps/{app}/agents/{agent}/chat: a conversation with an agent, in one of its threads."""

import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from baobab.http.console.app_page import read_app, refuse_field
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.pages.runs import PATH as RUN
from baobab.http.console.run_view import ENDED, show_value
from baobab.http.console.visit import Visit
from baobab.tools.core.guard.escaping import escape_json

_PATH = "/apps/{app}/agents/{agent}/chat"
_FIELD = re.compile(r"\{\{\s*input\.([A-Za-z_][A-Za-z0-9_]{0,60})\s*\}\}")
_THREAD = re.compile(r"[A-Za-z0-9-]{1,64}")
_SHOWN = 30


async def show_chat(visit: Visit) -> Context:
    """Shows what was said in a thread, and what the agent is writing."""
    app, name = await read_app(visit), visit.parts["agent"]
    agent = (await visit.call("agents_get", app_id=app["id"], name=name))["agent"]
    thread = visit.query.get("thread", "")
    if not _THREAD.fullmatch(thread):
        thread = f"console-{uuid4().hex}"
    names = {"app_id": app["id"], "name": name, "thread_id": thread}
    runs = (await visit.call("agents_runs_list", **names, limit=_SHOWN))["runs"][::-1]
    field = _find_field(agent["graph_spec"])
    last = runs[-1] if runs else None
    is_live = last is not None and last["status"] not in ENDED
    path = "" if last is None else RUN.format(app=app["id"], agent=name, run=last["id"])
    return {
        "app": app,
        "title": f"Chat with {name}",
        "agent": agent,
        "thread": thread,
        "turns": [_describe(run, field) for run in runs],
        "once": uuid4().hex,
        "is_live": is_live,
        "feed": f"{path}/live?since={last['last_seq']}" if last is not None and is_live else "/session",
        "remembers": any(node.get("remembers") for node in agent["graph_spec"]["nodes"].values()),
    }


def _find_field(graph: Mapping[str, Any]) -> str:
    """Returns the field of the input that the graph reads first."""
    match = _FIELD.search(escape_json({"nodes": graph["nodes"]}))
    return match[1] if match else "message"


def _describe(run: Mapping[str, Any], field: str) -> dict[str, Any]:
    message = run["input"].get(field) if isinstance(run["input"], dict) and len(run["input"]) == 1 else run["input"]
    return {
        "run": run,
        "asked": show_value(message),
        "answer": None if run["output"] is None else show_value(run["output"]),
    }


async def say(visit: Visit) -> str:
    """Starts a run in the thread. The idempotency key makes sure that a form that is sent twice starts one run."""
    app_id, name, thread = visit.parts["app"], visit.parts["agent"], visit.form.get("thread", "")
    text = visit.form.get("text", "").strip()
    if not text or not _THREAD.fullmatch(thread):
        raise refuse_field("text", "Write something.")
    agent = (await visit.call("agents_get", app_id=app_id, name=name))["agent"]
    idempotency_key = visit.form.get("once", "")[:64] or uuid4().hex
    input_values = {_find_field(agent["graph_spec"]): text}
    names = {"app_id": app_id, "name": name, "thread_id": thread}
    await visit.call("agents_run", **names, input=input_values, idempotency_key=idempotency_key)
    return f"{_PATH.format(app=app_id, agent=name)}?thread={thread}"


PAGES = (Page(_PATH, "Chat", "agent_chat.html", show_chat),)
FORMS = (Form(_PATH, say),)
