"""Access to the files of meeting bots by signed addresses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.ai.meetings.bots import content_path
from baobab.tools.core import BaobabError, Call, Caller
from baobab.tools.core.errors import UrlExpired, UrlRefused
from baobab.tools.core.signed_urls import require_signature


@dataclass(frozen=True, slots=True)
class BySignedUrl:
    """Any caller with an address that this server has signed, with or without a credential."""

    anonymous: bool = True
    credential: bool = False
    description: str = "Whoever has the signed address; no credential."
    raises: tuple[type[BaobabError], ...] = (UrlRefused, UrlExpired)

    def admits(self, caller: Caller) -> bool:
        return True

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        path = content_path(str(arguments.get("bot_id")), str(arguments.get("kind")))
        require_signature(call, "GET", path, arguments)


BY_SIGNED_URL = BySignedUrl()
