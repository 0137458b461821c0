"""Actions on a run: cancelling it, starting a new run from one of its steps, and comparing it with another run."""

import json
from itertools import zip_longest
from typing import Any
from uuid import uuid4

from baobab.http.console.app_page import parse_object, read_app, refuse_field
from baobab.http.console.compare import compare_texts
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.pages.runs import PATH, read_events, read_run
from baobab.http.console.run_view import build_timeline, say_steps
from baobab.http.console.visit import Visit

_COMPARED = 500
"""The most events of each run that are compared."""


async def cancel(visit: Visit) -> str:
    names = {"app_id": visit.parts["app"], "name": visit.parts["agent"], "id": visit.parts["run"]}
    await visit.call("agents_runs_cancel", **names)
    return PATH.format(**visit.parts)


async def show_fork(visit: Visit) -> Context:
    """Shows the form of a fork. Its idempotency key makes sure that a form that is sent twice starts one run."""
    app, details = await read_app(visit), await read_run(visit)
    step = visit.query.get("step", "")
    return {
        "app": app,
        "run": details["run"],
        "step": step if step.isdecimal() and len(step) < 4 else "",
        "input_text": json.dumps(details["run"]["input"], indent=2, ensure_ascii=True),
        "keys": sorted(
            {node["output_key"] for node in details["graph_spec"]["nodes"].values() if "output_key" in node}
        ),
        "once": uuid4().hex,
        "path": PATH.format(**visit.parts),
    }


async def fork(visit: Visit) -> str:
    run = (await read_run(visit))["run"]
    arguments: dict[str, Any] = {"idempotency_key": visit.form.get("once", "")[:64] or uuid4().hex}
    if step := visit.form.get("step", "").strip():
        if not step.isdecimal():
            raise refuse_field("step", "Type the number of a step.")
        arguments["step"] = int(step)
    run_input = parse_object(visit.form.get("input", ""), "input")
    if run_input is not None and run_input != run["input"]:
        arguments["input"] = run_input
    if state := parse_object(visit.form.get("state", ""), "state"):
        arguments["state"] = state
    new_run = await visit.call("agents_runs_fork", app_id=run["app_id"], name=run["agent"], id=run["id"], **arguments)
    return PATH.format(app=run["app_id"], agent=run["agent"], run=new_run["run_id"])


async def show_comparison(visit: Visit) -> Context:
    """Shows the steps of two runs of an agent side by side."""
    app, first_run = await read_app(visit), await read_run(visit)
    names = {"app_id": app["id"], "name": visit.parts["agent"]}
    runs = (await visit.call("agents_runs_list", **names, limit=50))["runs"]
    values = {
        "app": app,
        "path": PATH.format(**visit.parts),
        "run": first_run["run"],
        "others": [row for row in runs if row["id"] != first_run["run"]["id"]],
        "other": None,
        "rows": [],
    }
    if other_id := visit.query.get("with", "")[:36]:
        second_run = await read_run(visit, other_id)
        texts = [
            "\n".join(
                say_steps(build_timeline(await read_events(visit, each["run"], 0, _COMPARED), each["graph_spec"]))
            )
            for each in (first_run, second_run)
        ]
        values |= {"other": second_run["run"], "rows": _set_beside(compare_texts(*texts))}
    return values


def _set_beside(lines: list[tuple[str, str]]) -> list[tuple[str | None, str | None, bool]]:
    """Returns the lines of a comparison in two columns, each with whether both sides are the same."""
    rows: list[tuple[str | None, str | None, bool]] = []
    old: list[str] = []
    new: list[str] = []
    for sign, line in [*lines, (" ", "")]:
        if sign == "-":
            old.append(line)
        elif sign == "+":
            new.append(line)
        else:
            rows += [(old_line, new_line, False) for old_line, new_line in zip_longest(old, new)]
            old, new = [], []
            rows.append((line, line, True))
    return rows[:-1]


PAGES = (
    Page(PATH + "/fork", "Go on from a step", "fork.html", show_fork),
    Page(PATH + "/compare", "Compare runs", "compare.html", show_comparison),
)
FORMS = (Form(PATH + "/cancel", cancel), Form(PATH + "/fork", fork))
