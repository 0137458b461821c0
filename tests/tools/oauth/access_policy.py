"""The callers that may call the tools of oauth, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from baobab.tools.oauth.requests import seal
from tests.conftest import ADDRESS
from tests.tools.access import INTERNAL, PUBLIC, TOKENS, Caller, World

DOCUMENT = "https://client.example/client.json"

POLICY = {
    "oauth_request": PUBLIC,
    "oauth_decide": TOKENS,
    # Only the OAuth endpoints call these, after they have checked what the protocol asks for.
    "oauth_register": INTERNAL,
    "oauth_client": INTERNAL,
    "oauth_code": INTERNAL,
    "oauth_exchange": INTERNAL,
    "oauth_refresh_token": INTERNAL,
    "oauth_refresh": INTERNAL,
    "oauth_revoke": INTERNAL,
    "oauth_programs_list": TOKENS,
    "oauth_programs_revoke": "401 403 403 403 403 403 403 403 404 404 404 403 404 403",
}


async def for_oauth_request(world: World, caller: Caller) -> dict[str, Any]:
    client: dict[str, Any] = {"client_id": DOCUMENT, "client_name": "Agent", "code_challenge": "c" * 43}
    fields: dict[str, Any] = {"redirect_uri": "http://localhost/", "redirect_given": True, "state": None}
    request = seal(world.baobab.application.services, **client, **fields, scopes=None, resource=None, issuer=ADDRESS)
    return {"request": request}


async def for_oauth_decide(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_oauth_request(world, caller), "decision": "approve"}


async def for_oauth_programs_revoke(world: World, caller: Caller) -> dict[str, Any]:
    return {"program_id": world.baobab.application.services.ids.uuid()}
