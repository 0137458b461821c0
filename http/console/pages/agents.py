"""/console/apps/{app}/agents: the agents of an app, and one of them with its graph."""

from uuid import uuid4

from baobab.http.console.app_page import parse_object, read_app
from baobab.http.console.graph_drawing import draw_graph
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.pages.runs import PATH, describe_run
from baobab.http.console.rendering import say_approvers
from baobab.http.console.visit import Visit
from baobab.tools.core.guard.escaping import escape_json

_RUNS = 5


async def show_agents(visit: Visit) -> Context:
    app = await read_app(visit)
    page = await visit.call("agents_list", app_id=app["id"])
    return {"app": app, "agents": page["agents"]}


async def show_agent(visit: Visit) -> Context:
    app, name = await read_app(visit), visit.parts["agent"]
    agent = (await visit.call("agents_get", app_id=app["id"], name=name))["agent"]
    latest_runs = await visit.call("agents_runs_list", app_id=app["id"], name=name, limit=_RUNS)
    return {
        "app": app,
        "title": agent["display_name"] or name,
        "agent": agent,
        "who": say_approvers(agent["approvers"] or "starter"),
        "who_of_nodes": [
            (node_id, say_approvers(node["approvers"]))
            for node_id, node in agent["graph_spec"]["nodes"].items()
            if node.get("approvers")
        ],
        "drawing": draw_graph(agent["graph_spec"]),
        "graph_text": escape_json(agent["graph_spec"], indent=2),
        "runs": [describe_run(run) for run in latest_runs["runs"]],
        "once": uuid4().hex,
    }


async def start(visit: Visit) -> str:
    """Starts a run and returns its page. The idempotency key makes sure that a form that is sent twice starts one
    run.
    """
    app_id, name = visit.parts["app"], visit.parts["agent"]
    run_input = parse_object(visit.form.get("input", ""), "input") or {}
    idempotency_key = visit.form.get("once", "")[:64] or uuid4().hex
    new_run = await visit.call("agents_run", app_id=app_id, name=name, input=run_input, idempotency_key=idempotency_key)
    return PATH.format(app=app_id, agent=name, run=new_run["run_id"])


PAGES = (
    Page("/apps/{app}/agents", "Agents", "agents.html", show_agents, tab="Agents", group="Agents", icon="bot", rank=10),
    Page("/apps/{app}/agents/{agent}", "Agent", "agent.html", show_agent),
)
FORMS = (Form("/apps/{app}/agents/{agent}/run", start),)
