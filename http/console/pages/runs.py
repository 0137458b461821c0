"""/console/apps/{app}/runs: the runs of an app's agents, and the progress of one run."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from baobab.http.console.app_page import read_app
from baobab.http.console.graph_drawing import draw_graph
from baobab.http.console.page import Context, Feed, Page
from baobab.http.console.pages.row_changes import count_written_rows
from baobab.http.console.rendering import say_duration, say_milliseconds
from baobab.http.console.run_stream import RunParts, follow_parts
from baobab.http.console.run_view import ENDED, REMEDIES, STATUSES, build_timeline, find_states
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import RouteNotFound
from baobab.tools.core.guard.escaping import escape_json
from baobab.tools.core.stream import Stream

_SHOWN = 50
_WINDOW = 300
"""The events that one page of a run shows."""
_READ = 500
_ASKED = 10
"""The model calls whose prompt and answer the run's page shows; each of the others has a page of its own."""
PATH = "/apps/{app}/runs/{agent}/{run}"


async def show_runs(visit: Visit) -> Context:
    """Shows the runs of one agent, or of all."""
    app = await read_app(visit)
    filters = {name: visit.query[name] for name in ("agent", "status", "cursor") if visit.query.get(name)}
    options: dict[str, Any] = {name: value for name, value in filters.items() if name != "agent"}
    name = filters.get("agent", "_")
    page = await visit.call("agents_runs_list", app_id=app["id"], name=name, limit=_SHOWN, **options)
    agents = await visit.call("agents_list", app_id=app["id"])
    return {
        "app": app,
        "runs": [describe_run(row) for row in page["runs"]],
        "following": page.get("next_cursor"),
        "names": [agent["name"] for agent in agents["agents"]],
        "statuses": STATUSES,
        "asked": filters,
    }


def describe_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a run with its duration in words, up to now if it has not ended."""
    took = None
    if run["started_at"] is not None and run["finished_at"] is not None:
        # The clocks of two servers may disagree a little.
        seconds = max(0.0, (run["finished_at"] - run["started_at"]).total_seconds())
        took = say_milliseconds(seconds * 1000) if seconds < 3600 else say_duration(seconds)
    return {**run, "took": took, "has_ended": run["status"] in ENDED}


async def read_run(visit: Visit, run_id: str | None = None) -> Mapping[str, Any]:
    """Returns the run that the path names, or another run of the same agent, with its graph."""
    names = {"app_id": visit.parts["app"], "name": visit.parts["agent"], "id": run_id or visit.parts["run"]}
    details: Mapping[str, Any] = await visit.call("agents_runs_get", **names, with_graph=True)
    return details


async def read_events(visit: Visit, run: Mapping[str, Any], since: int, limit: int = _READ) -> list[dict[str, Any]]:
    names = {"app_id": run["app_id"], "name": run["agent"], "id": run["id"]}
    page = await visit.call("agents_runs_events_list", **names, since_seq=since, limit=limit)
    events: list[dict[str, Any]] = page["events"]
    return events


async def show_run(visit: Visit) -> Context:
    """Shows the newest events of a run, or the events before the one that the query names."""
    app, details = await read_app(visit), await read_run(visit)
    run, graph = details["run"], details["graph_spec"]
    before = visit.query.get("before", "")
    end = min(int(before), run["last_seq"]) if before.isdecimal() and len(before) < 10 else run["last_seq"]
    since = max(0, end - _WINDOW)
    # A run that goes on may have new ones by now, of the newest page.
    events = await read_events(visit, run, since, end - since if before else _READ) if end > since else []
    has_ended = run["status"] in ENDED
    latest = events[-1]["seq"] if events else since
    path = PATH.format(**visit.parts)
    # Not while the run is active: the page is then loaded again and again, and each call counts against the limit.
    model_calls = await _read_model_calls(visit, run, events) if has_ended else {}
    states = find_states(run, events)
    return {
        "app": app,
        "rows_written": await count_written_rows(visit, app["id"], run["id"]) if has_ended else 0,
        "title": f"Run of {run['agent']}",
        "run": describe_run(run),
        "may_cancel": details.get("may_cancel", False),
        "path": path,
        "entries": build_timeline(events, graph, model_calls),
        "drawing": draw_graph(graph, states),
        "remedy": REMEDIES.get((run["error"] or {}).get("type", "")),
        "input_text": escape_json(run["input"], indent=2),
        "output_text": None if run["output"] is None else _say_output(run["output"]),
        "waiting": _list_waiting(run, events),
        "earlier": since if since > 0 else None,
        "before": before,
        "latest": latest,
        "feed": "/session" if has_ended or before else f"{path}/live?from={since}&since={latest}",
        "is_live": not has_ended and not before,
    }


async def _read_model_calls(
    visit: Visit, run: Mapping[str, Any], events: Sequence[Mapping[str, Any]]
) -> dict[int, Mapping[str, Any]]:
    """Returns the requests to models in the newest steps of these events, by step."""
    steps = [event["payload"]["step"] for event in events if event["type"] == "llm_token_usage"]
    if not steps:
        return {}
    names = {"app_id": run["app_id"], "name": run["agent"], "id": run["id"]}
    since = sorted(steps)[-_ASKED:][0] - 1
    page = await visit.call("agents_runs_model_calls", **names, after_step=since, limit=_ASKED)
    return {call["step"]: call for call in page["model_calls"]}


async def show_model_call(visit: Visit) -> Context:
    """Shows one call to a model, with the parts of its prompt and answer that are kept."""
    app, details = await read_app(visit), await read_run(visit)
    step = visit.parts["step"]
    if not step.isdecimal() or len(step) > 9:
        raise RouteNotFound
    names = {"app_id": app["id"], "name": visit.parts["agent"], "id": details["run"]["id"]}
    calls = (await visit.call("agents_runs_model_calls", **names, after_step=int(step) - 1, limit=1))["model_calls"]
    if not calls or calls[0]["step"] != int(step):
        raise RouteNotFound
    return {"app": app, "title": f"Model call of step {step}", "asked": calls[0], "path": PATH.format(**visit.parts)}


def _say_output(output: Any) -> str:
    return output if isinstance(output, str) else escape_json(output, indent=2)


def _list_waiting(run: Mapping[str, Any], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the calls that the run waits for: its own and those of its child runs."""
    paused_calls = {
        event["payload"]["approval_id"]: event["payload"] for event in events if event["type"] == "run_paused"
    }
    for event in events:
        if event["type"] == "run_resumed":
            paused_calls.pop(event["payload"]["approval_id"], None)
    if run["status"] != "paused":
        own_calls: list[dict[str, Any]] = []
    else:
        own_calls = [
            {"approval_id": approval_id, "tool": payload["tool_name"]} for approval_id, payload in paused_calls.items()
        ]
    calls_below = [decision for child in run.get("waiting_for", []) for decision in child["decisions"]]
    own_ids = {decision["approval_id"] for decision in own_calls}
    return [*own_calls, *(decision for decision in calls_below if decision["approval_id"] not in own_ids)]


async def show_event(visit: Visit) -> Context:
    """Shows one event with its whole payload."""
    app, details = await read_app(visit), await read_run(visit)
    seq = visit.parts["seq"]
    if not seq.isdecimal() or not 0 < int(seq) <= details["run"]["last_seq"]:
        raise RouteNotFound
    (event,) = await read_events(visit, details["run"], int(seq) - 1, 1)
    text = escape_json(_leave_out_token(event)["payload"], indent=2)
    return {"app": app, "title": event["type"], "event": event, "text": text, "path": PATH.format(**visit.parts)}


def _leave_out_token(event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an event without the decision token, which no file or screen needs, and without what `payload`
    repeats.
    """
    payload = {name: value for name, value in event["payload"].items() if name not in ("payload", "approval_token")}
    return {**event, "payload": payload}


async def open_live(visit: Visit) -> Stream:
    """Opens the stream of a run's events and of the text that its model writes. For the page of the run itself, whose
    query names the last event that it shows (`from`), the stream also brings the changed parts of the page.
    """
    since = _read_seq(visit.query.get("last_event_id", "")) or _read_seq(visit.query.get("since", "")) or 0
    names = {"app_id": visit.parts["app"], "name": visit.parts["agent"], "id": visit.parts["run"]}
    begin = _read_seq(visit.query.get("from", ""))
    if begin is None:
        return await visit.follow("agents_runs_events", **names, since_seq=since)
    details = await read_run(visit)
    events_shown = [event for event in await read_events(visit, details["run"], begin) if event["seq"] <= since]
    services, path = visit.registry.services, PATH.format(**visit.parts)

    def render(values: Mapping[str, Any]) -> str:
        values = {**values, "run": describe_run(values["run"]), "app": {"id": visit.parts["app"]}, "path": path}
        return visit.render("run_live.html", values)

    parts = RunParts(details["run"], details["graph_spec"], events_shown, render, _WINDOW)
    stream = await visit.follow("agents_runs_events", **names, since_seq=since)
    return replace(stream, pieces=follow_parts(stream.pieces, parts, services.clock.now))


def _read_seq(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else None


async def open_download(visit: Visit) -> Stream:
    """Opens the run, its graph and all its events as one JSON object."""
    details = await read_run(visit)

    async def write() -> AsyncGenerator[bytes, None]:
        yield b'{"run": %s,\n"graph_spec": %s,\n"events": [' % (to_json(details["run"]), to_json(details["graph_spec"]))
        since, comma = 0, b"\n"
        while events := await read_events(visit, details["run"], since):
            for event in events:
                yield comma + to_json(_leave_out_token(event))
                comma = b",\n"
            since = events[-1]["seq"]
            if len(events) < _READ:
                break
        yield b"\n]}\n"

    return Stream(write(), "application/json")


PAGES = (
    Page("/apps/{app}/runs", "Runs", "runs.html", show_runs, tab="Runs", group="Agents", icon="play", rank=20),
    Page(PATH, "Run", "run.html", show_run),
    Page(PATH + "/events/{seq}", "Event", "event.html", show_event),
    Page(PATH + "/model-calls/{step}", "Model call", "model_call.html", show_model_call),
)
FEEDS = (
    Feed(PATH + "/live", open_live),
    Feed(PATH + "/run.json", open_download, file_name="run.json"),
)
