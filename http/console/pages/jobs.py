"""/console/jobs: pending background jobs, and those that have failed."""

from urllib.parse import quote, urlencode

from baobab.http.console.app_page import name_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import BadRequest
from baobab.tools.core.guard.escaping import escape_json

_SHOWN = 50
_APPS_AT_ONCE = 500
_STATES = ("unfinished", "failed")


async def show_jobs(visit: Visit) -> Context:
    organisations = await visit.list_organisations("jobs_list")
    of, state, kind = (
        visit.query.get("of") or organisations[0]["id"],
        visit.query.get("state", ""),
        visit.query.get("kind", ""),
    )
    state = state if state in _STATES else "unfinished"
    filters = {"kind": kind} if kind else {}
    if visit.query.get("cursor"):
        filters["cursor"] = visit.query["cursor"]
    page = await visit.call("jobs_list", of, status=state, limit=_SHOWN, **filters)
    titles = await _name_apps(visit, of, {job["app_id"] for job in page["jobs"] if job["app_id"]})
    rows = [{**job, "path": _lead_to(job["id"], of), "app_title": titles.get(job["app_id"])} for job in page["jobs"]]
    next_query = urlencode({"of": of, "state": state, "kind": kind, "cursor": page["next_cursor"] or ""})
    values = {"of": of, "organisations": organisations, "state": state, "states": _STATES, "kind": kind, "rows": rows}
    return {**values, "more": next_query if page["next_cursor"] else "", "silent": page["silent_regions"]}


async def show_job(visit: Visit) -> Context:
    of, job_id = visit.query.get("of"), visit.query.get("id", "")
    job = (await visit.call("jobs_get", of, job_id=_require_id(job_id)))["job"]
    arguments = [
        (escape_json(name)[1:-1], escape_json(value, indent=2), None) for name, value in job["arguments"].items()
    ]
    may_retry = job["status"] in ("waiting", "failed", "cancelled")
    app_ids = {job["app_id"]} if job["app_id"] and of else set()
    job = {**job, "app_title": (await _name_apps(visit, of or "", app_ids)).get(job["app_id"])}
    return {"title": job["kind"], "of": of or "", "job": job, "arguments_shown": arguments, "retried": may_retry}


async def _name_apps(visit: Visit, of: str, app_ids: set[str]) -> dict[str, str]:
    """Returns what these apps of an organisation are called, by their ids. One that is being deleted has no name."""
    titles: dict[str, str] = {}
    cursor: dict[str, str] = {}
    while app_ids - titles.keys():
        page = await visit.call("apps_list", org_id=of, limit=_APPS_AT_ONCE, **cursor)
        titles |= {app["id"]: name_app(app) for app in page["apps"] if app["id"] in app_ids}
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    return titles


async def retry(visit: Visit) -> str:
    return await _do(visit, "jobs_retry")


async def cancel(visit: Visit) -> str:
    return await _do(visit, "jobs_cancel")


async def _do(visit: Visit, tool: str) -> str:
    of, job_id = visit.form.get("of") or None, _require_id(visit.form.get("id", ""))
    await visit.call(tool, of, job_id=job_id)
    return _lead_to(job_id, of or "")


def _require_id(job_id: str) -> str:
    if not job_id:
        raise BadRequest("This link names no job.")
    return job_id


def _lead_to(job_id: str, of: str) -> str:
    return f"/jobs/one?{urlencode({'id': job_id, 'of': of}, quote_via=quote)}"


PAGES = (
    Page(
        "/jobs",
        "Jobs",
        "jobs.html",
        show_jobs,
        menu="Jobs",
        tool="jobs_list",
        group="Organisation",
        icon="clock",
        rank=60,
    ),
    Page("/jobs/one", "Job", "job.html", show_job),
)
FORMS = (Form("/jobs/one/retry", retry), Form("/jobs/one/cancel", cancel))
