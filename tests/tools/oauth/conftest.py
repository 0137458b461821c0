"""A client that asks, and a person who answers: the steps of OAuth without the endpoints' protocol."""

import hashlib
import itertools
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from baobab.tools.oauth.requests import seal
from tests.conftest import ADDRESS
from tests.tools.conftest import ToolHarness

REDIRECT = "http://127.0.0.1:3000/callback"
CHALLENGE = urlsafe_b64encode(hashlib.sha256(b"verifier").digest()).decode().rstrip("=")
_REQUESTS = itertools.count()


class Flow:
    def __init__(self, harness: ToolHarness) -> None:
        self.harness = harness

    async def call_endpoint(self, tool: str, *, ip: str | None = None, **arguments: Any) -> Any:
        """Calls a tool as the OAuth endpoints do."""
        number = next(_REQUESTS)
        context = RequestContext("oauth", str(number), ip=ip or f"address {number}")
        result = await self.harness.registry.call(tool, arguments, ANONYMOUS, context)
        self.harness.registry.find(tool).encode(result)
        return result

    async def register_client(self, name: str = "Agent", *uris: str) -> Any:
        return await self.call_endpoint("oauth_register", redirect_uris=list(uris or (REDIRECT,)), client_name=name)

    def build_request(self, client: Any, **other: Any) -> str:
        fields = {
            "client_id": client["client_id"],
            "client_name": client["name"],
            "redirect_uri": REDIRECT,
            "redirect_given": True,
            "state": "s t&te",
            "code_challenge": CHALLENGE,
            "scopes": ["mcp"],
            "resource": None,
            "issuer": ADDRESS,
        }
        return seal(self.harness.services, **{**fields, **other})

    async def obtain_code(self, client: Any, by: Account, *, scopes: list[str] | None = None, **choices: Any) -> str:
        request = self.build_request(client, scopes=scopes)
        answer = await self.harness.call("oauth_decide", by, request=request, decision="approve", **choices)
        return parse_redirect(answer)["code"]

    async def obtain_key(self, by: Account, **choices: Any) -> str:
        client = await self.register_client()
        code = await self.obtain_code(client, by, **choices)
        result = await self.call_endpoint("oauth_exchange", client_id=client["client_id"], code=code)
        key: str = result["access_token"]
        return key


def parse_redirect(decision: Any) -> dict[str, str]:
    """Returns the parameters with which the redirect answers the client."""
    return {name: values[0] for name, values in parse_qs(urlsplit(decision["redirect_to"]).query).items()}


@pytest.fixture
def flow(harness: ToolHarness) -> Flow:
    return Flow(harness)
