"""Who may see pages: everybody those of the live deployment, and whoever has a signed address those of a preview."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.tools.core import AppNotFound, BaobabError, Call, Caller
from baobab.tools.core.cookies import name_cookie
from baobab.tools.core.errors import AppPaused, UrlExpired, UrlRefused
from baobab.tools.core.signed_urls import require_signature


@dataclass(frozen=True, slots=True)
class SiteVisitor:
    """Everybody, while the app is not paused."""

    anonymous: bool = True
    credential: bool = False
    description: str = "Everybody; no credential."
    raises: tuple[type[BaobabError], ...] = (AppNotFound, AppPaused)

    def admits(self, caller: Caller) -> bool:
        return True

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        require_running(call)


@dataclass(frozen=True, slots=True)
class PreviewVisitor:
    """Whoever opened the address of a preview, which those who run the app get."""

    anonymous: bool = True
    credential: bool = False
    description: str = "Whoever has the signed address of the preview; no credential."
    raises: tuple[type[BaobabError], ...] = (AppNotFound, AppPaused, UrlRefused, UrlExpired)

    def admits(self, caller: Caller) -> bool:
        return True

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        require_running(call)
        path = build_preview_path(call.require_app().id, str(arguments.get("deployment_id")))
        if arguments.get("signature"):
            require_signature(call, "GET", path, arguments)
            return
        expires, _, signature = read_cookie(call, str(arguments.get("cookie") or "")).partition(".")
        is_number = expires.isascii() and expires.isdigit() and len(expires) < 14
        signed_values = {"expires": int(expires), "signature": signature} if is_number else {}
        require_signature(call, "GET", path, signed_values)


@dataclass(frozen=True, slots=True)
class ByUploadUrl:
    """Any caller with the address of an upload that this server has signed."""

    anonymous: bool = True
    credential: bool = False
    description: str = "Whoever has the signed address; no credential."
    raises: tuple[type[BaobabError], ...] = (AppNotFound, UrlRefused, UrlExpired)

    def admits(self, caller: Caller) -> bool:
        return True

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        path = build_upload_path(call.require_app().id, str(arguments.get("deployment_id")))
        require_signature(call, "PUT", path, arguments)


VISITORS, PREVIEWERS, BY_UPLOAD_URL = SiteVisitor(), PreviewVisitor(), ByUploadUrl()


def require_running(call: Call) -> None:
    """Raises AppPaused."""
    app = call.require_app()
    if app.is_paused:
        raise AppPaused(app.paused_reason)


def build_upload_path(app_id: str, deployment_id: str) -> str:
    """Returns the path to which a zip is sent, with a signature."""
    return f"/v1/{app_id}/frontend/deployments/{deployment_id}/zip"


def build_preview_path(app_id: str, deployment_id: str) -> str:
    """Returns the path that a preview's signature covers. The preview itself has a host of its own."""
    return f"/v1/{app_id}/frontend/deployments/{deployment_id}/pages"


def build_preview_label(app_id: str, deployment_id: str) -> str:
    """Returns the first part of a preview's host name (http/hosts.py reads it)."""
    return f"preview-{app_id.removeprefix('app_')}-{deployment_id.replace('-', '')}"


def name_preview_cookie(call: Call) -> str:
    return name_cookie(call.services.options.base_url, "baobab_preview")


def read_cookie(call: Call, header: str) -> str:
    """Returns the value of the preview's cookie in a header; empty if there is none."""
    # Read by hand: the library's parser drops all cookies after one that it does not like.
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return next((value for name, _, value in pairs if name == name_preview_cookie(call)), "")
