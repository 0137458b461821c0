"""The parts that OAuth clients share: their storage, and how they read an answer."""

from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

REDIRECT = "http://127.0.0.1:3000/callback"


class Storage:
    """The storage of a client."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def parse_query(link: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
