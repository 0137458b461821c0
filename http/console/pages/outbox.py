"""/console/substrate/outbox: messages to other systems, with each attempt to deliver them."""

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.substrate_page import ask, lead_to, read_substrate
from baobab.http.console.visit import Visit

PATH = "/substrate/outbox"
_SHOWN = 50
_STATES = ("pending", "delivered", "failed", "cancelled")


async def show_outbox(visit: Visit) -> Context:
    values, state = await read_substrate(visit, PATH), visit.query.get("state", "")
    filters = {"state": state} if state in _STATES else {}
    if visit.query.get("before"):
        filters["before"] = visit.query["before"]
    page = await ask(visit, "substrate_outbox", limit=_SHOWN, **filters)
    targets = (await ask(visit, "substrate_outbox_targets"))["targets"]
    context = {"rows": page["outbox"], "before": page["next_before"], "targets": targets}
    return {**values, **context, "state": state, "states": _STATES}


async def cancel(visit: Visit) -> str:
    await ask(visit, "substrate_outbox_cancel", outbox_id=visit.parts["delivery"])
    return lead_to(visit, PATH)


async def retry(visit: Visit) -> str:
    await ask(visit, "substrate_outbox_retry", outbox_id=visit.parts["delivery"])
    return lead_to(visit, PATH)


PAGES = (Page(PATH, "Outbox", "outbox.html", show_outbox),)
FORMS = (Form(PATH + "/{delivery}/cancel", cancel), Form(PATH + "/{delivery}/retry", retry))
