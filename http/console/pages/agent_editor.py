"""/console/apps/{app}/agents/{agent}/edit: the graph of an agent as text, with its issues and its drawing beside it."""

import json
from collections.abc import Mapping
from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.graph_drawing import draw_graph
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import BadRequest

_AGENT = "/apps/{app}/agents/{agent}"
_NEW = "/apps/{app}/new-agent"
_TEMPLATE = "agent_edit.html"
_FIRST: Mapping[str, Any] = {
    "spec_version": 1,
    "entry": "answer",
    "nodes": {
        "answer": {
            "type": "llm",
            "system_prompt": "Answer in one sentence.",
            "input_template": "{{ input.message }}",
            "output_key": "answer",
        },
        "done": {"type": "end", "output_template": "{{ state.answer }}"},
    },
    "edges": [{"from": "answer", "to": "done"}],
}


async def show_editor(visit: Visit) -> Context:
    name = visit.parts["agent"]
    agent = (await visit.call("agents_get", app_id=visit.parts["app"], name=name))["agent"]
    return await _check(visit, name, json.dumps(agent["graph_spec"], indent=2, ensure_ascii=False))


async def show_new(visit: Visit) -> Context:
    return await _check(visit, "", json.dumps(_FIRST, indent=2))


async def check(visit: Visit) -> Context:
    """Returns the issues and the drawing of a graph while it is typed."""
    return await _check(visit, visit.parts.get("agent", ""), visit.form.get("graph", ""))


async def save(visit: Visit) -> str | Context:
    """Saves the graph, or shows its issues if it cannot be saved."""
    name, text = visit.parts.get("agent", ""), visit.form.get("graph", "")
    values = await _check(visit, name, text)
    if not values["valid"]:
        return values
    app_id, graph = visit.parts["app"], json.loads(text)
    if name:
        await visit.call("agents_update", app_id=app_id, name=name, graph_spec=graph)
    else:
        name = visit.form.get("name", "").strip()
        await visit.call("agents_create", app_id=app_id, name=name, graph_spec=graph)
    return _AGENT.format(app=app_id, agent=name)


async def _check(visit: Visit, name: str, text: str) -> dict[str, Any]:
    app = await read_app(visit)
    # Browsers send line ends as CR LF.
    text = text.replace("\r\n", "\n")
    issues: list[dict[str, str]] = []
    drawing, valid = None, False
    try:
        graph = json.loads(text)
        if not isinstance(graph, dict):
            raise BadRequest("The graph must be a JSON object.")
        report = await visit.call("agents_validate", app_id=app["id"], name=name or "_", graph_spec=graph)
        valid = report["valid"]
        problems = [*report.get("issues", ()), *report.get("warnings", ())]
        issues += [{"path": ".".join(map(str, problem["path"])), "message": problem["message"]} for problem in problems]
        if valid:
            drawing = draw_graph(graph)
    except json.JSONDecodeError as exc:
        issues.append({"path": f"line {exc.lineno}", "message": f"It is not JSON: {exc.msg}."})
    except (BadRequest, RecursionError) as exc:
        issues.append(
            {"path": "", "message": exc.message if isinstance(exc, BadRequest) else "It is nested too deeply."}
        )
    path = _AGENT.format(app=app["id"], agent=name) if name else _NEW.format(app=app["id"])
    return {
        "app": app,
        "title": f"Edit {name}" if name else "A new agent",
        "name": name,
        "path": path,
        "graph_text": text,
        "issues": issues,
        "valid": valid,
        "drawing": drawing,
    }


PAGES = (
    Page(f"{_AGENT}/edit", "Edit", _TEMPLATE, show_editor),
    Page(_NEW, "A new agent", _TEMPLATE, show_new),
)
FORMS = (
    Form(f"{_AGENT}/check", check, _TEMPLATE),
    Form(f"{_AGENT}/save", save, _TEMPLATE),
    Form(f"{_NEW}/check", check, _TEMPLATE),
    Form(f"{_NEW}/save", save, _TEMPLATE),
)
