"""/console/templates: apps that others offer, what each can do, and cloning one."""

from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

_ONE, _JOB = "/templates/{template}", "/clones/{job}"
_VARIABLE = "env:"
"""How the names of the form's fields begin that are environment variables: `env:FUNCTION:NAME`."""
_AT_ONCE = 20


async def show_gallery(visit: Visit) -> Context:
    q, sort = visit.query.get("q", "").strip()[:63], visit.query.get("sort", "recent")
    offset = int(visit.query["offset"]) if visit.query.get("offset", "").isdecimal() else 0
    arguments: dict[str, Any] = {"sort": "popular" if sort == "popular" else "recent", "limit": _AT_ONCE}
    arguments["offset"] = min(offset, 100_000)
    page = await visit.call("templates_list", **arguments, **({"q": q} if q else {}))
    following = page["offset"] + _AT_ONCE
    return {**page, "q": q, "sort": arguments["sort"], "following": following if following < page["total"] else None}


async def show_template(visit: Visit) -> Context:
    template_id = visit.parts["template"]
    template = await visit.call("templates_get", template_id=template_id)
    preflight = await visit.call("templates_preflight", template_id=template_id)
    organisations = await visit.list_organisations("templates_clone")
    regions = await visit.call("system_regions")
    return {
        "template": template,
        "title": template["name"],
        "preflight": preflight,
        "organisations": organisations,
        "regions": regions["regions"],
    }


async def clone(visit: Visit) -> str:
    """Starts a clone with the values of the form; what is left empty is not sent."""
    env: dict[str, dict[str, str]] = {}
    for field, value in visit.form.items():
        if field.startswith(_VARIABLE) and value:
            function, _, key = field.removeprefix(_VARIABLE).partition(":")
            env.setdefault(function, {})[key] = value
    arguments: dict[str, Any] = {"env_var_values": env} if env else {}
    arguments |= {name: value for name in ("name", "region") if (value := visit.form.get(name, "").strip())}
    if visit.form.get("of"):
        arguments["organization_id"] = visit.form["of"]
    job = await visit.call("templates_clone", template_id=visit.parts["template"], **arguments)
    return _JOB.format(job=job["job_id"])


async def show_job(visit: Visit) -> Context:
    job = await visit.call("clone_jobs_get", job_id=visit.parts["job"])
    review = None
    if job["dest_app_id"] is not None:
        review = await visit.call("clones_review", app_id=job["dest_app_id"])
    return {"job": job, "review": review, "title": f"Clone {job['name']}"}


async def retry(visit: Visit) -> str:
    await visit.call("clone_jobs_retry", job_id=visit.parts["job"])
    return _JOB.format(job=visit.parts["job"])


async def show_review(visit: Visit) -> Context:
    app = await read_app(visit)
    return {"app": app, "review": await visit.call("clones_review", app_id=app["id"])}


PAGES = (
    Page("/templates", "Templates", "templates.html", show_gallery, menu="Templates", icon="copy", rank=45),
    Page(_ONE, "Template", "template.html", show_template),
    Page(_JOB, "Clone", "clone.html", show_job),
    Page("/apps/{app}/clone-review", "Clone", "clone_review.html", show_review),
)
FORMS = (Form(_ONE + "/clone", clone), Form(_JOB + "/retry", retry))
