"""The parts that all pages of the substrate share: the organisation that they show, and the names of proposers."""

from typing import Any
from urllib.parse import quote, urlencode

from baobab.http.console.visit import Visit

SECTIONS = (
    ("/substrate", "Search"),
    ("/substrate/actions", "Ledger"),
    ("/substrate/entities", "Entities"),
    ("/substrate/rules", "Rules"),
    ("/substrate/outbox", "Outbox"),
)


async def read_substrate(visit: Visit, section: str) -> dict[str, Any]:
    """Returns what `substrate.html` needs. section: the path of the section that the page belongs to."""
    organisations = [
        {"id": each["id"], "name": each["name"]} for each in await visit.list_organisations("substrate_actions")
    ]
    organisation_id = visit.query.get("of") or organisations[0]["id"]
    return {"organisations": organisations, "of": organisation_id, "sections": SECTIONS, "section": section}


async def ask(visit: Visit, tool: str, **arguments: Any) -> Any:
    """Calls a tool in the organisation that the page or its form names."""
    return await visit.call(tool, visit.form.get("of") or visit.query.get("of") or None, **arguments)


def lead_to(visit: Visit, path: str, **query: str) -> str:
    """Returns the path of a page, for the organisation that the form named."""
    of = visit.form.get("of", "")
    return f"{path}?{urlencode({'of': of, **query}, quote_via=quote)}"


_PROPOSERS = {
    "run": "the run of an agent",
    "rule": "a rule",
    "app": "an app whose users are mirrored",
    "job": "the daily search for duplicates",
}


def name_proposer(source: Any) -> str | None:
    """Returns a readable name for whoever wrote a memory; None if that is not known."""
    if source is None:
        return None
    kind = (source["proposed_by"] or "").partition(":")[0]
    is_agent = source["proposed_by_kind"] == "agent"
    return _PROPOSERS.get(kind) or ("an agent with a key" if is_agent else "a key" if kind == "key" else "a person")
