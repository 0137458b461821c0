"""/console/apps/{app}/collections: collections of documents, the progress of their documents, and their texts."""

from typing import Any

from baobab.http.console.app_page import parse_object, read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import AppPaused, BadRequest

PATH = "/apps/{app}/collections"
COLLECTION = PATH + "/{collection}"
DOCUMENT = COLLECTION + "/documents/{document}"
MODES = {"private": "each sees their own documents", "shared": "all see all documents", "custom": "none sees any"}
_LISTED, _SHOWN, _FILES, _READ = 24, 25, 50, 8000
_STATES = ("pending", "processing", "ready", "failed")


async def read_collection(visit: Visit) -> Context:
    """Returns the app and the collection that the path names. Every page of a collection shows them."""
    app = await read_app(visit)
    details = await visit.call("rag_collections_get", app_id=app["id"], name=visit.parts["collection"])
    return {"app": app, "collection": details}


def read_number(text: str, label: str, most: int = 2**30) -> int:
    """Returns a whole number from 0 to `most`. Raises BadRequest for anything else."""
    if not (text.isdecimal() and text.isascii() and len(text) < 12 and int(text) <= most):
        raise BadRequest(f"The {label} must be a whole number up to {most}.")
    return int(text)


async def show_collections(visit: Visit) -> Context:
    app = await read_app(visit)
    offset = read_number(visit.query.get("offset", "0"), "offset")
    try:
        page = await visit.call("rag_collections_list", app_id=app["id"])
        names = [row["name"] for row in page[offset : offset + _LISTED]]
        rows = [await visit.call("rag_collections_get", app_id=app["id"], name=name) for name in names]
    except AppPaused:
        return {"app": app, "collections": None, "following": None, "modes": MODES}
    following = offset + _LISTED if offset + _LISTED < len(page) else None
    return {"app": app, "collections": rows, "following": following, "modes": MODES}


async def create(visit: Visit) -> str:
    name = visit.form.get("name", "")
    settings = {"description": visit.form.get("description") or None, "accessMode": visit.form.get("mode", "private")}
    await visit.call("rag_collections_create", app_id=visit.parts["app"], name=name, **settings)
    return COLLECTION.format(app=visit.parts["app"], collection=name)


async def show_collection(visit: Visit) -> Context:
    values = await read_collection(visit)
    names = {"app_id": visit.parts["app"], "name": visit.parts["collection"]}
    filters = {key: visit.query[key] for key in ("cursor", "status") if visit.query.get(key)}
    documents = await visit.call("rag_documents_list", **names, limit=_SHOWN, **filters)
    return {
        **values,
        "documents": documents,
        "following": documents[-1]["id"] if len(documents) == _SHOWN else None,
        "status": filters.get("status", ""),
        "states": _STATES,
        "modes": MODES,
        "files": await visit.call("files_list", app_id=visit.parts["app"], limit=_FILES),
    }


async def add(visit: Visit) -> str:
    """Adds a document: typed text, or a file of the app."""
    source = {"storage_object_id": visit.form["file"]} if visit.form.get("file") else {"text": visit.form.get("text")}
    await visit.call("rag_ingest", **_name_collection(visit), **source, **_describe_document(visit))
    return COLLECTION.format(**visit.parts)


async def change(visit: Visit) -> str:
    settings: dict[str, Any] = {
        "description": visit.form.get("description") or None,
        "accessMode": visit.form.get("mode"),
    }
    is_own = visit.form.get("own_text") == "yes"
    # Only admins change the mark; all others save the rest.
    if is_own != (await visit.call("rag_collections_get", **_name_collection(visit)))["ownText"]:
        settings["ownText"] = is_own
    await visit.call("rag_collections_update", **_name_collection(visit), **settings)
    return COLLECTION.format(**visit.parts)


async def reindex(visit: Visit) -> str:
    size, overlap = (read_number(visit.form.get(name, ""), name) for name in ("size", "overlap"))
    await visit.call("rag_reindex", **_name_collection(visit), chunkSize=size, chunkOverlap=overlap)
    return COLLECTION.format(**visit.parts)


async def delete(visit: Visit) -> str:
    await visit.call("rag_collections_delete", **_name_collection(visit))
    return PATH.format(app=visit.parts["app"])


async def show_document(visit: Visit) -> Context:
    values = await read_collection(visit)
    offset = read_number(visit.query.get("offset", "0"), "offset")
    names = {**_name_collection(visit), "document_id": visit.parts["document"]}
    document = await visit.call("rag_documents_get", **names)
    part = await visit.call("rag_read", **names, offset=offset, limit=_READ)
    return {**values, "document": document, "part": part, "before": max(offset - _READ, 0)}


async def replace(visit: Visit) -> str:
    names = {**_name_collection(visit), "document_id": visit.parts["document"]}
    await visit.call("rag_documents_replace", **names, text=visit.form.get("text"))
    return DOCUMENT.format(**visit.parts)


async def delete_document(visit: Visit) -> str:
    await visit.call("rag_documents_delete", **_name_collection(visit), document_id=visit.parts["document"])
    return COLLECTION.format(app=visit.parts["app"], collection=visit.parts["collection"])


def _name_collection(visit: Visit) -> dict[str, Any]:
    return {"app_id": visit.parts["app"], "name": visit.parts["collection"]}


def _describe_document(visit: Visit) -> dict[str, Any]:
    metadata = parse_object(visit.form.get("metadata", ""), "metadata")
    return {"filename": visit.form.get("filename") or None, "metadata": metadata}


PAGES = (
    Page(
        PATH, "Collections", "collections.html", show_collections, tab="Collections", group="Data", icon="book", rank=40
    ),
    Page(COLLECTION, "Collection", "collection.html", show_collection),
    Page(DOCUMENT, "Document", "collection_document.html", show_document),
)
FORMS = (
    Form(PATH + "/create", create),
    Form(COLLECTION + "/add", add),
    Form(COLLECTION + "/change", change),
    Form(COLLECTION + "/reindex", reindex),
    Form(COLLECTION + "/delete", delete),
    Form(DOCUMENT + "/replace", replace),
    Form(DOCUMENT + "/delete", delete_document),
)
