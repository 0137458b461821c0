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
from tests.tools.conftest import House

REDIRECT = "http://127.0.0.1:3000/callback"
CHALLENGE = urlsafe_b64encode(hashlib.sha256(b"verifier").digest()).decode().rstrip("=")
_REQUESTS = itertools.count()


class Flow:
    def __init__(self, house: House) -> None:
        self.house = house

    async def endpoint(self, tool: str, *, ip: str | None = None, **arguments: Any) -> Any:
        """What the OAuth endpoints call, as they call it."""
        number = next(_REQUESTS)
        door = RequestContext("oauth", str(number), ip=ip or f"address {number}")
        result = await self.house.registry.call(tool, arguments, ANONYMOUS, door)
        self.house.registry.find(tool).encode(result)
        return result

    async def client(self, name: str = "Agent", *uris: str) -> Any:
        return await self.endpoint("oauth_register", redirect_uris=list(uris or (REDIRECT,)), client_name=name)

    def ask(self, client: Any, **other: Any) -> str:
        asked = {
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
        return seal(self.house.services, **{**asked, **other})

    async def code(self, client: Any, by: Account, *, scopes: list[str] | None = None, **decided: Any) -> str:
        request = self.ask(client, scopes=scopes)
        answer = await self.house.use("oauth_decide", by, request=request, decision="approve", **decided)
        return answered(answer)["code"]

    async def key(self, by: Account, **decided: Any) -> str:
        client = await self.client()
        code = await self.code(client, by, **decided)
        made = await self.endpoint("oauth_exchange", client_id=client["client_id"], code=code)
        key: str = made["access_token"]
        return key


def answered(decided: Any) -> dict[str, str]:
    """What the redirect tells the client."""
    return {name: values[0] for name, values in parse_qs(urlsplit(decided["redirect_to"]).query).items()}


@pytest.fixture
def flow(house: House) -> Flow:
    return Flow(house)
