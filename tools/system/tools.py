"""Tools for health, regions, llms.txt and the documentation."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired
from urllib.parse import urlsplit

from pydantic import Field
from typing_extensions import TypedDict

from baobab.storage.kv.errors import KvError, StoreDamaged
from baobab.storage.objects.errors import ObjectError
from baobab.storage.sql.database import DatabaseDamaged, DatabaseUnavailable
from baobab.tools.core import EVERYBODY, Call, Guard, Mcp, Rest, Text, Unavailable
from baobab.tools.core.cells import Cells
from baobab.tools.core.guides import GuideNotFound, find_guide, guides
from baobab.tools.core.setting import InstallationSettings, Setting
from baobab.tools.system.access import OperatorOnly
from baobab.tools.system.copies import COPY_WAITS, describe_choice, describe_installation, drop_waiting, preview_live
from baobab.tools.system.errors import ChoiceMissing
from baobab.tools.system.example_calls import list_example_calls
from baobab.tools.system.guidance import guidance, list_tools
from baobab.tools.system.guide_search import find_sections
from baobab.tools.system.schemas import Choice, FoundSection, Installation
from baobab.tools.system.toolset import operation, system

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def list_faults(settings: Mapping[str, str], options_address: str) -> list[str]:
    """Lists problems of the settings, now or in production, each in a sentence or two."""
    faults: list[str] = []
    address = urlsplit(options_address)
    is_local = address.hostname in _LOOPBACK
    if not is_local and address.scheme != "https":
        faults.append(
            "BASE_URL is not https: others on the way can read passwords, keys and sessions, and browsers offer "
            "no passkeys. Put a proxy with TLS before the server, and set BAOBAB_BASE_URL to its https address."
        )
    if is_local and settings["host"] not in _LOOPBACK:
        faults.append(
            "The server listens to other machines, but links in mails and the addresses told to clients name this "
            "machine only. Set BAOBAB_BASE_URL."
        )
    if not is_local and not settings["trusted_proxies"]:
        faults.append(
            "No proxy is trusted. If one stands before the server, all clients seem to come from its address and share "
            "one rate limit: set BAOBAB_TRUSTED_PROXIES."
        )
    if not settings["smtp_url"]:
        faults.append("There is no mail server: mails wait in the outbox, and nobody gets them. Set BAOBAB_SMTP_URL.")
    if not is_local and settings["signup"] == "open":
        faults.append(
            "Everybody who reaches the server can make an account. Set BAOBAB_SIGNUP=closed if that is not meant."
        )
    if not settings["secret_key"]:
        faults.append(
            "The key that seals secrets is in the data folder, beside what it seals. Keep a copy elsewhere, or set "
            "BAOBAB_SECRET_KEY."
        )
    return faults


SERVICE = "baobab"

PageName = Annotated[str, Text(100, min_length=1), Field(examples=["graph-spec"])]
Section = Annotated[str, Text(200, min_length=1), Field(examples=["limits"])]
Question = Annotated[str, Text(400, min_length=1)]


class Health(TypedDict):
    status: str
    service: str


class Readiness(Health):
    checks: dict[str, str]


class SystemSettings(TypedDict):
    settings: list[Setting]
    faults: Annotated[list[str], Field(description="What is wrong or missing, in words.")]


class Regions(TypedDict):
    regions: list[str]


class GuideEntry(TypedDict):
    name: str
    title: str
    description: str
    characters: int


class Reading(TypedDict):
    """The list of pages, a part of one page (`next` is the section to read next), or the sections that were found."""

    found: NotRequired[Annotated[list[FoundSection], Field(description="The best first, for `name` and `section`.")]]
    pages: NotRequired[list[GuideEntry]]
    name: NotRequired[str]
    title: NotRequired[str]
    text: NotRequired[str]
    next: NotRequired[str | None]
    calls: NotRequired[Annotated[list[str], Field(description="The examples of this part as calls, without app_id.")]]
    sections: NotRequired[list[str]]


@system.tool(
    "GET /health",
    access=EVERYBODY,
    effect="read",
    limit=None,
)
async def system_health(call: Call) -> Health:
    """Check that the server is alive."""
    return {"status": "ok", "service": SERVICE}


@system.tool(
    "GET /health/ready",
    access=EVERYBODY,
    effect="read",
    limit=None,
    rest=Rest(status=lambda result: 200 if result["status"] in ("ready", "degraded") else 503, statuses=(200, 503)),
)
async def system_ready(call: Call) -> Readiness:
    """Check whether the server can work: asks every store, and lists every part of the process.

    `degraded`: the server's own stores answer, but those of another region do not. `draining`: the server is shutting
    down; it still answers, but send it nothing more. A store that is `damaged` must be restored from a backup. A part
    that is `starting` is not loaded yet: its first answers take longer. `outgoing` is listed in a copy of an
    installation, which sends and starts nothing.
    """
    services = call.services
    checks_by_name = {"database": _check(services.database.ping, DatabaseUnavailable)}
    for region, stores in services.regions.items():
        if stores.database is not services.database:
            checks_by_name[f"database:{region}"] = _check(stores.database.ping, DatabaseUnavailable)
        checks_by_name[f"kv:{region}"] = _check(stores.kv.check, KvError)
        checks_by_name[f"objects:{region}"] = _check(stores.objects.check, ObjectError)
    # All at once: the time limits of several silent stores must not add up.
    checks = dict(zip(checks_by_name, await asyncio.gather(*checks_by_name.values()), strict=True))
    checks |= {f"database:{region}": "failed" for region in services.closed_regions}
    failed_checks = {name for name, state in checks.items() if state != "ok"}
    # Only the apps of a further region suffer when its stores fail: the others' requests can still come here.
    essential_checks = {"database", *(f"{store}:{services.options.default_region}" for store in ("kv", "objects"))}
    parts: dict[str, str] = dict(services.lifecycle.parts)
    is_broken = bool(failed_checks & essential_checks) or "failed" in parts.values()
    for part, module in services.lifecycle.missing.items():
        parts[part] = f"failed: the Python module {module} is not installed"
    status = "not_ready" if is_broken else "degraded" if failed_checks else "ready"
    if services.lifecycle.draining:
        status = "draining"
    if services.liveness.is_copy:
        parts["outgoing"] = COPY_WAITS
    return {"status": status, "service": SERVICE, "checks": {**checks, **parts}}


@operation.tool("GET /v1/settings", access=OperatorOnly(), effect="read")
async def system_settings(call: Call) -> SystemSettings:
    """Read the settings of the installation, without secrets, and what is wrong with them or with its stores.

    Of a secret you see only whether it is set. Settings are environment variables: change them where you start the
    server.
    """
    services = call.services
    settings = list(services.part(InstallationSettings).settings)
    faults = list_faults({setting["name"]: setting["value"] for setting in settings}, services.options.base_url)
    checks = (await call.invoke("system_ready"))["checks"]
    faults += [f"{name} is {state}." for name, state in checks.items() if state not in ("ok", "ready", "starting")]
    return {"settings": settings, "faults": faults}


@operation.tool("GET /v1/installation", access=OperatorOnly(), effect="read", raises=(Unavailable,))
async def system_installation(call: Call) -> Installation:
    """Tell whether the installation lives, or is a copy that sends and starts nothing, and what waits in a copy."""
    return await describe_installation(call.services, call.registry.jobs)


@operation.tool(
    "POST /v1/installation/live",
    access=OperatorOnly(),
    effect="destructive",
    raises=(ChoiceMissing, Unavailable),
    guard=Guard(preview=preview_live),
)
async def system_go_live(call: Call, waiting: Choice = None) -> Installation:
    """Make this copy the installation that lives: from now on it sends mail and webhooks and continues agents.

    Stop the original first: two that live do everything twice. If this one lives already, nothing changes.
    """
    services = call.services
    before = await describe_choice(call, waiting)
    if before["state"] == "copy":
        # What is dropped is written in transactions of its own, which must not wait for this one.
        await call.unit.commit()
        if waiting == "drop":
            await drop_waiting(services, call.registry.jobs)
        await services.liveness.begin_to_live(services.database, services.notices)
        services.jobs.wake()
    return {**before, "state": "live"}


@system.tool(
    "GET /v1/regions",
    access=EVERYBODY,
    effect="read",
)
async def system_regions(call: Call) -> Regions:
    """List the regions that an app can live in, then the geographies that stand for several of them."""
    return {"regions": call.services.of(Cells).list_region_names()}


@system.tool(
    "GET /llms.txt",
    access=EVERYBODY,
    effect="read",
    rest=Rest(media_type="text/plain; charset=utf-8"),
    mcp=Mcp(start=True),
)
async def system_llms_txt(call: Call) -> str:
    """Read how to use this server, written for language models."""
    return guidance(call.registry, call.services.options.base_url)


@system.tool(
    "GET /llms-full.txt",
    access=EVERYBODY,
    effect="read",
    rest=Rest(media_type="text/plain; charset=utf-8"),
    mcp=Mcp(offered=False),
)
async def system_llms_full_txt(call: Call) -> str:
    """Read every tool of this server, each in a line."""
    return list_tools(call.registry, call.services.options.base_url)


@system.tool(
    access=EVERYBODY,
    effect="read",
    raises=(GuideNotFound,),
    mcp=Mcp(start=True),
)
async def docs_read(
    call: Call, name: PageName | None = None, section: Section | None = None, query: Question | None = None
) -> Reading:
    """Read the documentation: tables (`data`), the graph language of agents (`graph-spec`), models, errors, and more.

    name: a page; left out, the pages are listed.
    section: the section to start at, such as `limits`; pass `next` of the result to read on.
    query: words to search the sections of all pages for, or of the page that is named.
    """
    if query is not None:
        return {"found": await find_sections(query, None if name is None else find_guide(name).name)}
    if name is None:
        return {
            "pages": [
                {"name": g.name, "title": g.title, "description": g.description, "characters": len(g.text)}
                for g in guides().values()
            ]
        }
    guide = find_guide(name)
    text, following = guide.section(section)
    reading: Reading = {
        "name": guide.name,
        "title": guide.title,
        "text": text,
        "next": following,
        "sections": [part.slug for part in guide.parts],
    }
    calls = list_example_calls(text, call.registry)
    return {**reading, "calls": calls} if calls else reading


async def _check(ask: Any, failure: type[Exception]) -> str:
    try:
        await ask()
    except (DatabaseDamaged, StoreDamaged):
        return "damaged"
    except failure:
        return "failed"
    return "ok"
