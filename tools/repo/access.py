"""Access objects that decide who may read and write the repository of an app."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from baobab.tools.core import (
    Account,
    Anonymous,
    AppKey,
    AppNotFound,
    BaobabError,
    Call,
    Caller,
    Forbidden,
    Unauthenticated,
)
from baobab.tools.core.auth.access import owner_role
from baobab.tools.core.errors import UrlExpired, UrlRefused
from baobab.tools.core.signed_urls import Method, require_signature


@dataclass(frozen=True, slots=True)
class RepoAccess:
    """The owner and the keys of the app. Others can read it if the app is public, and get 404 if it is private."""

    does: Literal["read", "write"]
    anonymous: bool = True
    credential: bool = True
    # A public app's repository is for everybody, whoever may reach its data.
    in_every_mode: bool = True
    raises: tuple[type[BaobabError], ...] = (AppNotFound, Unauthenticated, Forbidden)

    @property
    def description(self) -> str:
        further = " Everybody, if the app is public." if self.does == "read" else ""
        return f"A member of the app's organisation, or a key of the app.{further}"

    def admits(self, caller: Caller) -> bool:
        return self.does == "read" or isinstance(caller, (Account, AppKey))

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        is_public = call.require_app().visibility == "public"
        if is_public and self.does == "read":
            return
        try:
            call.role = await owner_role(call)
        except Forbidden as exc:
            if not is_public:
                raise AppNotFound from exc
            if isinstance(call.caller, Anonymous):
                raise Unauthenticated from exc
            raise


@dataclass(frozen=True, slots=True)
class ByBlobUrl:
    """Any caller with an address of a content that this server has signed."""

    method: Method
    anonymous: bool = True
    credential: bool = False
    description: str = "Whoever has the signed address; no credential."
    raises: tuple[type[BaobabError], ...] = (AppNotFound, UrlRefused, UrlExpired)

    def admits(self, caller: Caller) -> bool:
        return True

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        path = build_blob_path(call.require_app().id, str(arguments.get("sha256")))
        require_signature(call, self.method, path, arguments, "size")


READERS, WRITERS = RepoAccess("read"), RepoAccess("write")
BY_UPLOAD_URL, BY_DOWNLOAD_URL = ByBlobUrl("PUT"), ByBlobUrl("GET")


def build_blob_path(app_id: str, sha256: str) -> str:
    """Returns the path at which a content is sent and read, with a signature."""
    return f"/v1/{app_id}/repo/blobs/{sha256}/content"
