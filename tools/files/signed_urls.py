"""The signed addresses of a file: one for its upload, and others for reading it."""

from baobab.tools.core import Call
from baobab.tools.core.signed_urls import build_signed_url

UPLOAD_SECONDS, DOWNLOAD_SECONDS = 300, 3600
LONGEST_SECONDS = 7 * 24 * 3600
"""How long the address of a download may be valid."""
THUMBNAIL_SUFFIX, PICTURE_SUFFIX = "/thumbnail", "/picture"


def build_upload_url(call: Call, app_id: str, file_id: str, content_type: str, size: int) -> str:
    path = build_content_path(app_id, file_id)
    return build_signed_url(call, "PUT", path, UPLOAD_SECONDS, type=content_type, size=size)


def build_reading_url(
    call: Call, app_id: str, file_id: str, seconds: int, suffix: str = "", **bound_values: str | int | None
) -> str:
    """Returns an address at which a file, or with a suffix a small copy of it, can be read for some seconds.

    bound_values: what else the address says, and cannot be changed; None for nothing.
    """
    base_url = call.services.options.build_files_address(app_id)
    said_values = {name: value for name, value in bound_values.items() if value is not None}
    path = build_content_path(app_id, file_id) + suffix
    return build_signed_url(call, "GET", path, seconds, base_url=base_url, **said_values)


def build_content_path(app_id: str, file_id: str) -> str:
    return f"/storage/{app_id}/content/{file_id}"


def build_published_url(call: Call, file_id: str) -> str:
    """Returns the permanent address of a file. It never has the host of the platform, whose cookies are the console's:
    where files have no domain of their own, it is on the app's own host.
    """
    app, options = call.require_app(), call.services.options
    has_domain = bool(options.files_domain)
    base_url = options.build_files_address(app.id) if has_domain else options.build_site_address(app.subdomain)
    app_part = f"/{app.id}" if has_domain else ""
    return f"{base_url}/storage{app_part}/published/{file_id}"
