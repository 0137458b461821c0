"""/console/apps/{app}/site: the web site of an app: which deployment visitors see, going to another, and domains."""

import asyncio
import shutil
import zipfile
from collections.abc import AsyncIterator, Sequence
from os import SEEK_END
from tempfile import TemporaryFile
from typing import IO
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import UploadFile

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import BadRequest
from baobab.tools.core.stream import Body

PATH = "/apps/{app}/site"
_ONE = PATH + "/{id}"
_DOMAIN = PATH + "/domains/{id}"
_LARGEST, _PIECE = 101 * 2**20, 2**18
"""A zip has at most 100 MiB; the form around it needs some more."""


async def show_site(visit: Visit) -> Context:
    app = await read_app(visit)
    domains = await visit.call("domains_list", app_id=app["id"])
    return {"app": app, **await visit.call("sites_list", app_id=app["id"]), "names": domains}


async def deploy(visit: Visit) -> str:
    """Deploys the zip that was chosen, or the files of a folder."""
    app_id = visit.parts["app"]
    if not visit.files:
        raise BadRequest("Choose a zip, or a folder.")
    deployment = await visit.call("sites_create", app_id=app_id)
    signed_values = dict(parse_qsl(urlsplit(deployment["uploadUrl"]).query))
    is_zip = len(visit.files) == 1 and str(visit.files[0].filename).lower().endswith(".zip")
    with TemporaryFile() as folder_zip:
        archive = visit.files[0].file if is_zip else folder_zip
        if not is_zip:
            await asyncio.to_thread(_write_zip, folder_zip, visit.files)
        size = archive.seek(0, SEEK_END)
        archive.seek(0)
        await visit.call(
            "sites_upload",
            app_id=app_id,
            deployment_id=deployment["id"],
            content=Body(_read(archive), size, "application/zip"),
            expires=int(signed_values["expires"]),
            signature=signed_values["signature"],
        )
    await visit.call("sites_start", app_id=app_id, deployment_id=deployment["id"])
    return PATH.format(app=app_id)


def _write_zip(target: IO[bytes], files: Sequence[UploadFile]) -> None:
    with zipfile.ZipFile(target, "w") as archive:
        for each in files:
            with archive.open(str(each.filename), "w") as member:
                shutil.copyfileobj(each.file, member)


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece


async def activate(visit: Visit) -> str:
    return await _do(visit, "sites_activate")


async def cancel(visit: Visit) -> str:
    return await _do(visit, "sites_cancel")


async def delete(visit: Visit) -> str:
    return await _do(visit, "sites_delete")


async def preview(visit: Visit) -> Context:
    """Shows the address of a preview, which opens for whoever has it."""
    app = await read_app(visit)
    answer = await visit.call("sites_preview", app_id=app["id"], deployment_id=visit.parts["id"])
    return {"app": app, "title": "Preview", "address": answer["url"], "seconds": answer["expiresIn"]}


async def add_domain(visit: Visit) -> str:
    await visit.call("domains_add", app_id=visit.parts["app"], hostname=visit.form.get("hostname", "").strip())
    return PATH.format(app=visit.parts["app"]) + "#domains"


async def check_domain(visit: Visit) -> str:
    return await _do_to_domain(visit, "domains_verify")


async def remove_domain(visit: Visit) -> str:
    return await _do_to_domain(visit, "domains_remove")


async def _do_to_domain(visit: Visit, tool: str) -> str:
    await visit.call(tool, app_id=visit.parts["app"], domain_id=visit.parts["id"])
    return PATH.format(app=visit.parts["app"]) + "#domains"


async def _do(visit: Visit, tool: str) -> str:
    await visit.call(tool, app_id=visit.parts["app"], deployment_id=visit.parts["id"])
    return PATH.format(app=visit.parts["app"])


PAGES = (
    Page(PATH, "Site", "site.html", show_site, tab="Site", tool="sites_list", group="People", icon="globe", rank=50),
)
FORMS = (
    Form(PATH + "/deploy", deploy, largest_files=_LARGEST),
    Form(_ONE + "/activate", activate),
    Form(_ONE + "/cancel", cancel),
    Form(_ONE + "/delete", delete),
    Form(_ONE + "/preview", preview, "site_preview.html"),
    Form(PATH + "/domains", add_domain),
    Form(_DOMAIN + "/check", check_domain),
    Form(_DOMAIN + "/remove", remove_domain),
)
