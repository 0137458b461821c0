"""Access to the tools behind the OAuth endpoints: only those endpoints may call them, for any caller."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BaobabError, Forbidden

INTERFACE_NAME = "oauth"
"""The interface that verifies what the protocol demands."""


class ThroughOAuthOnly(Forbidden):
    code = "OAUTH_ENDPOINT_ONLY"
    summary = "This operation is a part of the OAuth endpoints and is not called by itself."
    remediation = "Use /oauth/authorize, /oauth/token or /oauth/register."


@dataclass(frozen=True, slots=True)
class OAuthEndpoints:
    """Calls through the OAuth endpoints. Over another interface a code could be exchanged without its PKCE verifier."""

    anonymous: bool = True
    credential: bool = False
    description: str = "The OAuth endpoints of this server, and no other interface."
    raises: tuple[type[BaobabError], ...] = (ThroughOAuthOnly,)

    def admits(self, caller: Caller) -> bool:
        return False

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        if call.context.name != INTERFACE_NAME:
            raise ThroughOAuthOnly


OAUTH_ENDPOINTS = OAuthEndpoints()
