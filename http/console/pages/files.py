"""/console/apps/{app}/files: the files of an app, with previews and their total size."""

from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import AppPaused, BadRequest

PATH = "/apps/{app}/files"
_SHOWN = 24
_MOST_FOLDERS = 50
_FILTERS = ("prefix", "name", "sort")
_ORDERS = {"created": "newest first", "name": "by name", "size": "largest first"}
_BOX = "file-"
_UNKNOWN_TYPE = "application/octet-stream"


async def show_files(visit: Visit) -> Context:
    app = await read_app(visit)
    filters = {name: visit.query[name] for name in _FILTERS if visit.query.get(name)}
    cursor = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    try:
        usage = await visit.call("files_usage", app_id=app["id"])
        page = await visit.call("files_list", app_id=app["id"], limit=_SHOWN, **filters, **cursor)
        folder = {"prefix": filters["prefix"]} if "prefix" in filters else {}
        folders = (await visit.call("files_folders", app_id=app["id"], **folder))["folders"][:_MOST_FOLDERS]
        rows = [await _add_addresses(visit, row) for row in page]
        marks = (await visit.call("files_own_text_list", app_id=app["id"]))["own_text"]
    except AppPaused:
        return {"app": app, "files": [], "usage": None, "following": None}
    following = page[-1]["id"] if len(page) == _SHOWN else None
    return {
        "app": app,
        "files": rows,
        "usage": usage,
        "following": following,
        "own_text": marks,
        "folders": folders,
        "filters": {name: filters.get(name, "") for name in _FILTERS},
        "shown": urlencode(filters),
        "orders": _ORDERS,
        "once": uuid4().hex,
    }


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


async def change_publishing(visit: Visit) -> str:
    names = {"app_id": visit.parts["app"], "object_id": visit.parts["file"]}
    await visit.call("files_update", **names, published=visit.form.get("published") == "yes")
    return PATH.format(app=visit.parts["app"])


async def rename(visit: Visit) -> str:
    names = {"app_id": visit.parts["app"], "object_id": visit.parts["file"]}
    await visit.call("files_update", **names, filename=visit.form.get("filename", ""))
    return PATH.format(app=visit.parts["app"])


async def copy(visit: Visit) -> str:
    """Copies a file. The idempotency key makes sure that a form that is sent twice makes one copy."""
    names = {"app_id": visit.parts["app"], "object_id": visit.parts["file"]}
    key = {"idempotency_key": visit.form["once"][:128]} if visit.form.get("once") else {}
    await visit.call("files_copy", **names, filename=visit.form.get("filename", ""), **key)
    return PATH.format(app=visit.parts["app"])


async def delete_many(visit: Visit) -> str:
    """Deletes the files whose boxes were ticked."""
    ids = [name.removeprefix(_BOX) for name in visit.form if name.startswith(_BOX)]
    if not ids:
        raise BadRequest("No file is ticked.", remediation="Tick the files that are to be deleted.")
    await visit.call("files_delete_many", app_id=visit.parts["app"], ids=ids)
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
    Form(PATH + "/delete", delete_many),
    Form(PATH + "/{file}/publishing", change_publishing),
    Form(PATH + "/{file}/rename", rename),
    Form(PATH + "/{file}/copy", copy),
    Form(PATH + "/{file}/delete", delete),
)
