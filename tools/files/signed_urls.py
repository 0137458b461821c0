"""The signed addresses of a file: one for its upload, and others for reading it."""

from baobab.tools.core import Call
from baobab.tools.core.signed_urls import build_signed_url

UPLOAD_SECONDS, DOWNLOAD_SECONDS = 300, 3600
THUMBNAIL_SUFFIX = "/thumbnail"


def build_upload_url(call: Call, app_id: str, file_id: str, content_type: str, size: int) -> str:
    path = build_content_path(app_id, file_id)
    return build_signed_url(call, "PUT", path, UPLOAD_SECONDS, type=content_type, size=size)


def build_download_url(call: Call, app_id: str, file_id: str) -> str:
    return _build_reading_url(call, app_id, build_content_path(app_id, file_id))


def build_thumbnail_url(call: Call, app_id: str, file_id: str) -> str:
    return _build_reading_url(call, app_id, build_content_path(app_id, file_id) + THUMBNAIL_SUFFIX)


def build_content_path(app_id: str, file_id: str) -> str:
    return f"/storage/{app_id}/content/{file_id}"


def _build_reading_url(call: Call, app_id: str, path: str) -> str:
    base_url = call.services.options.build_files_address(app_id)
    return build_signed_url(call, "GET", path, DOWNLOAD_SECONDS, base_url=base_url)
