"""/console/substrate: memory, searched by words and meaning."""

from baobab.http.console.page import Context, Page
from baobab.http.console.substrate_page import ask, name_proposer, read_substrate
from baobab.http.console.visit import Visit

_SHOWN = 50
_WAYS = {"both": "words and meaning", "words": "words", "meaning": "meaning"}


async def show_memory(visit: Visit) -> Context:
    values = await read_substrate(visit, "/substrate")
    search_text, way = visit.query.get("q", "")[:1000], visit.query.get("by", "both")
    results = await ask(
        visit, "substrate_search_memory", q=search_text, search_by=way if way in _WAYS else "both", limit=_SHOWN
    )
    rows = [{**row, "by": name_proposer(row["source"])} for row in results["results"]]
    settings = await ask(visit, "substrate_settings")
    room = {"used": settings["used_bytes"], "limit": settings["limit_bytes"]}
    return {**values, "rows": rows, "room": room, "q": search_text, "way": way, "ways": _WAYS}


PAGES = (Page("/substrate", "Memory", "memory.html", show_memory, menu="Memory", icon="layers", rank=40),)
