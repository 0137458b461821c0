"""Clients of OAuth: programs that register, or publish a document about themselves."""

from typing import Annotated

from pydantic import Field
from sqlalchemy import insert, select

from baobab.runtime.oauth import redirects
from baobab.runtime.oauth.clients import MOST_REDIRECTS, NAMELESS, Client, ClientId, ClientName, readable_name
from baobab.runtime.oauth.documents import ClientDocuments, is_address
from baobab.runtime.oauth.errors import DocumentRefused, RedirectRefused, UnknownClient
from baobab.tools.core import Audit, Call, PerAddress, Text
from baobab.tools.core.auth.oauth_endpoints import OAUTH_ENDPOINTS
from baobab.tools.oauth.tables import oauth_clients
from baobab.tools.oauth.toolset import oauth

RedirectUris = Annotated[
    list[Annotated[str, Text(redirects.LONGEST, min_length=1)]], Field(min_length=1, max_length=MOST_REDIRECTS)
]


@oauth.tool(
    access=OAUTH_ENDPOINTS,
    effect="write",
    limit=PerAddress(20, 3600),
    raises=(RedirectRefused,),
    audit=Audit("oauth.client.register", category="auth", action="create", resource="oauth_client"),
)
async def oauth_register(call: Call, redirect_uris: RedirectUris, client_name: ClientName | None = None) -> Client:
    """Register a public client (RFC 7591). It gets no secret; unused for 30 days, it is deleted.

    redirect_uris: where it may be sent back to.
    client_name: what it calls itself.
    """
    client: Client = {
        "client_id": call.services.ids.uuid(),
        "name": readable_name(client_name or "", NAMELESS),
        "redirect_uris": [redirects.check_redirect(uri) for uri in redirect_uris],
        "document": False,
    }
    row = {"id": client["client_id"], "name": client["name"], "redirect_uris": client["redirect_uris"]}
    await call.execute(insert(oauth_clients), {**row, "created_at": call.now})
    call.audit.resource_id = client["client_id"]
    call.audit.data["name"] = client["name"]
    return client


@oauth.tool(access=OAUTH_ENDPOINTS, effect="read", limit=PerAddress(60, 60), raises=(UnknownClient, DocumentRefused))
async def oauth_client(call: Call, client_id: ClientId) -> Client:
    """Read a client by its id: one that registered, or one whose id is the address of its metadata document."""
    if is_address(client_id):
        return await call.services.of(ClientDocuments).client(client_id)
    row = (await call.execute(select(oauth_clients).where(oauth_clients.c.id == client_id))).first()
    if row is None:
        raise UnknownClient
    return {"client_id": row.id, "name": row.name, "redirect_uris": row.redirect_uris, "document": False}
