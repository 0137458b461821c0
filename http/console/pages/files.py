"""/console/apps/{app}/files: the files of an app, with previews and their total size."""

from typing import Any
from urllib.parse import urlsplit

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import AppPaused, BadRequest

PATH = "/apps/{app}/files"
_SHOWN = 24
_UNKNOWN_TYPE = "application/octet-stream"


async def show_files(visit: Visit) -> Context:
    app = await read_app(visit)
    cursor = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    try:
        usage = await visit.call("files_usage", app_id=app["id"])
        page = await visit.call("files_list", app_id=app["id"], limit=_SHOWN, **cursor)
        rows = [await _add_addresses(visit, row) for row in page]
        marks = (await visit.call("files_own_text_list", app_id=app["id"]))["own_text"]
    except AppPaused:
        return {"app": app, "files": [], "usage": None, "following": None}
    following = page[-1]["id"] if len(page) == _SHOWN else None
    return {"app": app, "files": rows, "usage": usage, "following": following, "own_text": marks}


async def announce(visit: Visit) -> Context:
    """Creates the upload of a file that the page's script was given. The script sends the bytes to the address in the
    answer.
    """
    size = visit.form.get("size", "")
    if not (size.isdecimal() and len(size) < 14):
        raise BadRequest("The size must be a number of bytes.")
    upload = await visit.call(
        "files_upload",
        app_id=visit.parts["app"],
        filename=visit.form.get("filename", ""),
        contentType=visit.form.get("type") or _UNKNOWN_TYPE,
        sizeBytes=int(size),
        public="public" in visit.form,
    )
    return {"title": "Send the file", "address": _drop_host(upload["uploadUrl"])}


async def write(visit: Visit) -> str:
    """Stores typed text as a file."""
    await visit.call(
        "files_put",
        app_id=visit.parts["app"],
        filename=visit.form.get("filename", ""),
        contentType="text/plain",
        content=visit.form.get("content", ""),
        public="public" in visit.form,
    )
    return PATH.format(**visit.parts)


async def change_visibility(visit: Visit) -> str:
    names = {"app_id": visit.parts["app"], "object_id": visit.parts["file"]}
    await visit.call("files_update", **names, public=visit.form.get("public") == "yes")
    return PATH.format(app=visit.parts["app"])


async def delete(visit: Visit) -> str:
    await visit.call("files_delete", app_id=visit.parts["app"], object_id=visit.parts["file"])
    return PATH.format(app=visit.parts["app"])


async def _add_addresses(visit: Visit, row: dict[str, Any]) -> dict[str, Any]:
    addresses = await visit.call("files_download", app_id=visit.parts["app"], object_id=row["id"])
    thumbnail = addresses["thumbnailUrl"]
    return {**row, "address": _drop_host(addresses["downloadUrl"]), "thumbnail": thumbnail and _drop_host(thumbnail)}


def _drop_host(address: str) -> str:
    """Returns an address without its host, because the console loads files from the host at which it was opened."""
    return urlsplit(address)._replace(scheme="", netloc="").geturl()


ADDRESS = """{% extends "base.html" %}
{% block main %}<h1>Send the file</h1>
<p data-address="{{ address }}">Its bytes go to the address of this paragraph.</p>{% endblock %}
"""

PAGES = (Page(PATH, "Files", "files.html", show_files, tab="Files", group="Data", icon="file", rank=30),)
FORMS = (
    Form(PATH + "/announce", announce, ADDRESS),
    Form(PATH + "/write", write),
    Form(PATH + "/{file}/visibility", change_visibility),
    Form(PATH + "/{file}/delete", delete),
)
