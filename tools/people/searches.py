"""Searches for people and companies: what is asked, what is paid, and the pages after the first."""

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

from pydantic_core import from_json, to_json

from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core import Call
from baobab.tools.core.limits.money import usd
from baobab.tools.core.simulators import mark_simulated
from baobab.tools.people.errors import TokenInvalid
from baobab.tools.people.paid_calls import pay_for, set_headers
from baobab.tools.people.providers.port import Found, Search
from baobab.tools.people.slots import Slot, Slots

SearchAction = Literal["search_person", "search_company"]
DEFAULT_PAGE_SIZE = 10
_PATHS = {"search_person": "person", "search_company": "company"}


async def run_search(
    call: Call,
    action: SearchAction,
    query: str,
    filters: Mapping[str, str | int | None],
    page_size: int | None,
    token: str | None,
    *,
    enrich: bool = True,
) -> Any:
    """Searches, charges for what is found, and returns the answer. token: None for a new search."""
    slot = call.services.part(Slots).find(action)
    given_filters = {name: value for name, value in filters.items() if value not in (None, "")}
    if token is not None:
        search = _open_token(call, slot, action, token, page_size)
        if query or given_filters:
            call.warn("`nextToken` goes on with its own search: the other fields were not used.")
    else:
        if query and given_filters:
            call.warn(f"`query` takes priority: {', '.join(given_filters)} were not used.")
        search = Search(query, {} if query else given_filters, page_size or DEFAULT_PAGE_SIZE, enrich)
    provider = slot.provider
    ask = provider.search_people if action == "search_person" else provider.search_companies
    purchase = await pay_for(
        call,
        slot,
        action,
        slot.price_search(provider.count_most(search)),
        lambda: ask(search),
        lambda found: slot.price_search(len(found.results)),
    )
    page: Found = purchase.answer
    call.warn(*page.notes)
    set_headers(call, slot, purchase.price, purchase.charged)
    call.audit.data = {"results": len(page.results), "slot": slot.name}
    answer = {
        "data": {
            "results": list(page.results),
            "nextPage": _build_next_page(call, slot, action, search, page.cursor),
            "totalResultCount": len(page.results) if page.total is None else page.total,
        },
        "usage": {"creditsConsumed": purchase.price.credits, "usdCharged": usd(purchase.charged)},
    }
    return mark_simulated(call, answer) if provider.is_simulated else answer


def _build_next_page(call: Call, slot: Slot, action: SearchAction, search: Search, cursor: str | None) -> str | None:
    """Returns the address of the next page. Its token hides which provider answers, and has the whole search in it."""
    if cursor is None:
        return None
    place = [slot.provider.name, action, search.query, search.filters, search.page_size, search.enrich, cursor]
    app_id = call.require_app().id
    # Without the padding, it is the same in an address and out of it.
    token = call.services.vault.seal(to_json(place), _context(app_id)).rstrip("=")
    base_url = call.services.options.base_url
    return f"{base_url}/v1/{app_id}/people/search/{_PATHS[action]}?next_token={quote(token)}"


def _open_token(call: Call, slot: Slot, action: SearchAction, token: str, page_size: int | None) -> Search:
    """Returns the search of a token. Raises TokenInvalid."""
    if not token:
        # Whoever pages through results must not buy another search where they end.
        remediation = "Nothing is left to read. A search without nextToken is a new one, and costs credits again."
        raise TokenInvalid("nextToken is empty: the page before it was the last one.", remediation=remediation)
    try:
        place = from_json(call.services.vault.open(_pad(token), _context(call.require_app().id)))
    except SecretUnreadable as exc:
        raise TokenInvalid from exc
    provider_name, token_action, query, filters, token_page_size, enrich, cursor = place
    if (provider_name, token_action) != (slot.provider.name, action):
        raise TokenInvalid
    return Search(query, filters, page_size or token_page_size, enrich, cursor)


def _pad(token: str) -> str:
    return token + "=" * (-len(token.rpartition(".")[2]) % 4)


def _context(app_id: str) -> str:
    return f"people.page:{app_id}"
