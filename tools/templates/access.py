"""The access object of a template's page: everybody, with whichever credential they have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core import BaobabError, Call, Caller


@dataclass(frozen=True, slots=True)
class AnybodyAtAll:
    """Everyone may call. A credential is looked at, because its owner's own apps are found, too."""

    anonymous: bool = True
    credential: bool = True
    description: str = "Public; with an account's credential, its own apps are found, too."
    raises: tuple[type[BaobabError], ...] = ()

    def admits(self, caller: Caller) -> bool:
        return True

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        return None


ANYBODY = AnybodyAtAll()
