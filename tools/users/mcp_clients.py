"""MCP clients that register with an app: each client's id is its own record, sealed for the app.

So strangers who register fill no table, and the client of one app is unknown in every other.
"""

import json

from baobab.runtime.oauth import redirects
from baobab.runtime.oauth.clients import NAMELESS, Client, readable_name
from baobab.runtime.oauth.documents import ClientDocuments, is_address
from baobab.runtime.oauth.errors import RedirectRefused, UnknownClient
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core import Services

LONGEST = 2000
"""Characters of a client's id."""
_CONTEXT = "mcp client:"


def create_client(services: Services, app_id: str, redirect_uris: list[str], name: str | None) -> Client:
    """Returns a new client of an app. Raises RedirectRefused, also for more addresses than an id can hold."""
    checked_uris = [redirects.check_redirect(uri) for uri in redirect_uris]
    display_name = readable_name(name or "", NAMELESS)
    client_id = services.vault.seal(json.dumps([display_name, checked_uris]).encode(), _CONTEXT + app_id)
    if len(client_id) > LONGEST:
        raise RedirectRefused("The redirect addresses are too long together.")
    return {"client_id": client_id, "name": display_name, "redirect_uris": checked_uris, "document": False}


async def find_client(services: Services, app_id: str, client_id: str) -> Client:
    """Returns a client by its id: one that registered with this app, or one whose id is the address of its document.

    Raises UnknownClient and DocumentRefused.
    """
    if is_address(client_id):
        return await services.of(ClientDocuments).client(client_id)
    try:
        name, redirect_uris = json.loads(services.vault.open(client_id, _CONTEXT + app_id))
    except (SecretUnreadable, ValueError, TypeError) as exc:
        raise UnknownClient from exc
    return {"client_id": client_id, "name": name, "redirect_uris": redirect_uris, "document": False}
