"""/console/substrate/entities: people, companies and other things, with their aliases and merges."""

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.substrate_page import ask, lead_to, read_substrate
from baobab.http.console.visit import Visit

PATH = "/substrate/entities"
_SHOWN = 50


async def show_entities(visit: Visit) -> Context:
    values, search_text = await read_substrate(visit, PATH), visit.query.get("q", "")[:200]
    filters = {"q": search_text} if search_text else {}
    if visit.query.get("cursor"):
        filters["cursor"] = visit.query["cursor"]
    page = await ask(visit, "substrate_entities", limit=_SHOWN, **filters)
    return {**values, "rows": page["entities"], "following": page["next_cursor"], "q": search_text}


async def show_entity(visit: Visit) -> Context:
    entity = await ask(visit, "substrate_entity", entity_id=visit.parts["entity"])
    title = entity["display_name"] or entity["id"]
    return {**await read_substrate(visit, PATH), "title": title, "entity": entity}


async def merge(visit: Visit) -> str:
    """Proposes that another entity becomes an alias of this one."""
    payload = {"loser_id": visit.form.get("other", "").strip(), "winner_id": visit.parts["entity"]}
    return await _propose(visit, "merge_entities", payload)


async def unmerge(visit: Visit) -> str:
    return await _propose(visit, "unmerge_entities", {"entity_id": visit.form.get("alias", "")})


async def _propose(visit: Visit, capability: str, payload: dict[str, str]) -> str:
    payload["reason"] = visit.form.get("reason", "").strip() or "Proposed in the console."
    action = await ask(visit, "substrate_propose", capability=capability, payload=payload)
    return lead_to(visit, f"/substrate/actions/{action['action_id']}")


PAGES = (
    Page(PATH, "Entities", "entities.html", show_entities),
    Page(PATH + "/{entity}", "Entity", "entity.html", show_entity),
)
FORMS = (Form(PATH + "/{entity}/merge", merge), Form(PATH + "/{entity}/unmerge", unmerge))
