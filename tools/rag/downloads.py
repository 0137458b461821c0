"""Fetches documents from the web by the guarded client: only public addresses, and only so many bytes and seconds."""

from pathlib import Path

from baobab.runtime.net.egress import Egress, EgressTooLarge
from baobab.tools.core import Services, Unavailable

_MOST_BYTES = 20 * 2**20
_SECONDS = 60.0
_HOPS = 5
_ENDS_BY_ITSELF = frozenset((408, 425, 429, 500, 502, 503, 504))


class PageRefused(Exception):
    """The page cannot be fetched. `reason` is a sentence for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


async def download_page(services: Services, url: str, target: Path) -> str | None:
    """Writes what is at an address into a file, and returns the type that its server says.

    Raises PageRefused, Unavailable and EgressError.
    """
    http_client = services.http_client
    assert isinstance(http_client, Egress)
    try:
        async with http_client.stream(
            "GET", url, max_bytes=_MOST_BYTES, timeout=_SECONDS, follow=_HOPS, cross_host=True
        ) as answer:
            if answer.status in _ENDS_BY_ITSELF:
                raise Unavailable(f"The address answered {answer.status}.")
            if answer.status != 200:
                raise PageRefused(f"The address answered {answer.status}.")
            with target.open("wb") as file:
                async for piece in answer:
                    file.write(piece)
            media_type: str | None = answer.headers.get("Content-Type")
    except EgressTooLarge as exc:
        raise PageRefused(f"The address sent more than {_MOST_BYTES} bytes.") from exc
    return media_type
