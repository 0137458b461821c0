"""Health, regions and llms.txt."""

from typing import Any

from typing_extensions import TypedDict

from baobab.storage.database import DatabaseUnavailable
from baobab.storage.kv.errors import KvError
from baobab.tools.access import EVERYBODY
from baobab.tools.call import Call
from baobab.tools.system.guidance import guidance
from baobab.tools.tool import Toolset

system = Toolset("system", "The installation: health, regions, guidance for language models.")

SERVICE = "baobab"


class Health(TypedDict):
    status: str
    service: str


class Readiness(Health):
    checks: dict[str, str]


class Regions(TypedDict):
    regions: list[str]


@system.tool("GET /health", access=EVERYBODY, effect="read", limit=None)
async def system_health(call: Call) -> Health:  # noqa: ARG001 - every handler takes its call
    """Tell that the server is alive."""
    return {"status": "ok", "service": SERVICE}


@system.tool(
    "GET /health/ready",
    access=EVERYBODY,
    effect="read",
    limit=None,
    status=lambda result: 200 if result["status"] == "ready" else 503,
    statuses=(200, 503),
)
async def system_ready(call: Call) -> Readiness:
    """Tell whether the server can do its work: every store is asked."""
    checks = {"database": await _check(call.services.database.ping, DatabaseUnavailable)}
    for region, stores in call.services.regions.items():
        checks[f"kv:{region}"] = await _check(stores.kv.check, KvError)
    ready = all(found == "ok" for found in checks.values())
    return {"status": "ready" if ready else "not_ready", "service": SERVICE, "checks": checks}


@system.tool("GET /v1/regions", access=EVERYBODY, effect="read")
async def system_regions(call: Call) -> Regions:
    """List the regions that an app can live in."""
    return {"regions": list(call.services.regions)}


@system.tool("GET /llms.txt", access=EVERYBODY, effect="read", media_type="text/plain; charset=utf-8", start=True)
async def system_llms_txt(call: Call) -> str:
    """Read how to use this server, written for language models."""
    return guidance(call.registry, call.services.options.base_url)


async def _check(ask: Any, failure: type[Exception]) -> str:
    try:
        await ask()
    except failure:
        return "failed"
    return "ok"
