"""What a clone of an app has of its collections: their settings, and the documents that are marked `_seed`."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from sqlalchemy import Table, select, update

from baobab.storage.sql.full_text import split_words, tag_words
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core.app_clones import Ability, ClonedRows, ClonedStore, CloneRule, Cloning, Place, Row
from baobab.tools.rag.tables import chunks, collections, documents, texts, vectors

MARK = "_seed"
"""The field of a document's metadata that marks it for clones."""
_AT_ONCE = 100


def _copy_collection(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    values = {
        "id": cloning.derive_id(collections.name, row["id"]),
        # Its texts are a stranger's.
        "own_text": None,
        "size_bytes": 0,
        "revision": 1,
        "created_at": cloning.started_at,
        "updated_at": cloning.started_at,
    }
    return {**row, **values}


def _list_abilities(row: Row) -> Iterable[Ability]:
    if row["access_mode"] == "public":
        says = f"Anyone without signing in may read every document of the collection {row['name']}."
        yield Ability("open_collection", row["name"], says)
    if row["own_text"]:
        says = f"Agents take the texts of the collection {row['name']} for the app's own."
        yield Ability("own_text", f"collection {row['name']}", says, tool="rag_collections_update")


async def _read_seeds(place: Place) -> AsyncIterator[list[dict[str, Any]]]:
    """Yields the marked documents that searches see, some at a time."""
    of_app = (documents.c.app_id == place.app_id, documents.c.version.is_not(None))
    query = select(documents).where(*of_app).order_by(documents.c.id).limit(_AT_ONCE)
    page_query = query
    while True:
        async with place.stores.database.reading() as connection:
            rows = [dict(row) for row in (await connection.execute(page_query)).mappings()]
        yield [row for row in rows if row["metadata"].get(MARK) is True]
        if len(rows) < _AT_ONCE:
            return
        page_query = query.where(documents.c.id > rows[-1]["id"])


async def _copy_seeds(cloning: Cloning) -> None:
    sizes: dict[str, int] = {}
    async for rows in _read_seeds(cloning.source):
        for row in rows:
            copy = _copy_document(cloning, row)
            await _copy_parts(cloning, row, copy)
            sizes[copy["collection_id"]] = sizes.get(copy["collection_id"], 0) + copy["size_bytes"]
    dest = cloning.dest
    async with dest.stores.database.writing(lock=dest.app_id, bulk=True) as connection:
        for collection_id, size in sizes.items():
            is_it = (collections.c.app_id == dest.app_id, collections.c.id == collection_id)
            await connection.execute(update(collections).where(*is_it).values(size_bytes=size))


def _copy_document(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    derived_id = cloning.derive_id(documents.name, row["id"])
    values = {
        "app_id": cloning.dest.app_id,
        # Its beginning is the time by which lists are sorted.
        "id": row["id"][:13] + derived_id[13:],
        "collection_id": cloning.derive_id(collections.name, row["collection_id"]),
        "user_id": None,
        "status": "ready",
        "error_message": None,
        "writer": "outside",
        "next_writer": None,
        "next_version": None,
        "ingest_id": None,
        "chunks_done": row["chunk_count"],
        "chunks_total": row["chunk_count"],
        "attempts": 0,
        "object_id": None,
        "keeps_text": False,
        "key_id": None,
        "created_at": cloning.started_at,
        "updated_at": cloning.started_at,
    }
    return {**row, **values}


async def _copy_parts(cloning: Cloning, row: dict[str, Any], copy: dict[str, Any]) -> None:
    """Copies a document with its texts, chunks and vectors in one transaction, unless it is there."""
    source, dest = cloning.source, cloning.dest
    values: dict[str, list[dict[str, Any]]] = {}
    names = {"app_id": dest.app_id, "document_id": copy["id"], "collection_id": copy["collection_id"]}
    # Of 44 bits, as those that are drawn.
    first_number = int(cloning.derive_id("rag_numbers", row["id"]).replace("-", "")[-11:], 16) << 16
    async with source.stores.database.reading() as connection:
        for table in (texts, chunks, vectors):
            of_version = (table.c.app_id == source.app_id, table.c.document_id == row["id"])
            query = select(table).where(*of_version, table.c.version == row["version"])
            found_rows = (await connection.execute(query)).mappings().all()
            values[table.name] = [{**part, **names} for part in found_rows]
    for chunk in values[chunks.name]:
        words = split_words("\n".join((*chunk["headings"], chunk["text"])))
        chunk["number"] = first_number + chunk["position"]
        chunk["words"] = " ".join(tag_words(copy["collection_id"], words))
    tables: tuple[Table, ...] = (texts, chunks, vectors)
    async with dest.stores.database.writing(lock=dest.app_id, bulk=True) as connection:
        insertion = build_upsert(dest.stores.database.dialect, documents).on_conflict_do_nothing()
        if not (await connection.execute(insertion, copy)).rowcount:
            return
        for table in tables:
            if values[table.name]:
                await connection.execute(table.insert(), values[table.name])


async def _read_texts(place: Place) -> AsyncIterator[tuple[str, str]]:
    async for rows in _read_seeds(place):
        for row in rows:
            of_version = (texts.c.app_id == place.app_id, texts.c.document_id == row["id"])
            query = select(texts.c.text).where(*of_version, texts.c.version == row["version"])
            async with place.stores.database.reading() as connection:
                found_texts = (await connection.execute(query)).scalars().all()
            for text in found_texts:
                yield f"document {row['filename'] or row['id']}", text


CLONES: tuple[CloneRule, ...] = (
    ClonedRows(
        collections,
        "replaying_config",
        "collections with their settings; none of them counts as the app's own text",
        _copy_collection,
        list_abilities=_list_abilities,
    ),
    ClonedStore(
        "documents",
        "the documents whose metadata say `_seed: true`, with their texts and vectors",
        {"seeding_data": _copy_seeds},
        tables=(documents.name, texts.name, chunks.name, vectors.name),
        read_texts=_read_texts,
    ),
)
