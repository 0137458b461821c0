"""/console/apps/{app}/collections/{collection}/search: chunks in their documents, and an answer with its sources."""

from collections.abc import Mapping
from typing import Any

from baobab.http.console.app_page import parse_object, refuse_field
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.pages.collections import COLLECTION, read_collection, read_number
from baobab.http.console.visit import Visit
from baobab.storage.sql.full_text import find_words
from baobab.tools.core.errors import NotFound
from baobab.tools.rag.text_search import choose_words

PATH = COLLECTION + "/search"
WAYS = {"hybrid": "meaning and words", "vector": "meaning", "text": "words"}
_AROUND = 300
"""The characters of a document that are shown before and after a chunk."""
_LONGEST = 10_000


async def show_search(visit: Visit) -> Context:
    values = {**await read_collection(visit), **_describe(visit.query)}
    if not values["q"]:
        return {**values, "chunks": None, "answer": None}
    results = await visit.call("rag_query", **_ask(visit, visit.query))
    return {**values, "chunks": await _place_chunks(visit, results["chunks"], values["q"]), "answer": None}


async def answer(visit: Visit) -> Context:
    """Asks a model to rank the chunks, to answer, or both. This is a form and not a page because it costs money."""
    values = {**await read_collection(visit), **_describe(visit.form)}
    is_only_ordered = visit.form.get("do") == "order"
    values["reranked"] = is_only_ordered or "rerank" in visit.form
    options = {"rerank": values["reranked"], "synthesize": not is_only_ordered}
    results = await visit.call("rag_query", **_ask(visit, visit.form), **options, model=visit.form.get("model") or None)
    values["chunks"] = await _place_chunks(visit, results["chunks"], values["q"])
    if is_only_ordered:
        return {**values, "title": "Search", "answer": None}
    model_answer = {"text": results["answer"], "model": results["model"], "sentences": results["sentences"]}
    return {**values, "title": "Answer", "answer": model_answer}


def _describe(fields: Mapping[str, str]) -> dict[str, Any]:
    """Returns the search that was made, for the form to show again."""
    search: dict[str, Any] = {name: fields.get(name, "") for name in ("q", "filter", "threshold", "diversity", "model")}
    search["q"] = search["q"][:_LONGEST]
    search |= {"mode": fields.get("mode", "hybrid"), "top": fields.get("top") or "5"}
    return {**search, "ways": WAYS, "reranked": False}


def _ask(visit: Visit, fields: Mapping[str, str]) -> dict[str, Any]:
    search = _describe(fields)
    return {
        "app_id": visit.parts["app"],
        "name": visit.parts["collection"],
        "query": search["q"],
        "mode": search["mode"],
        "topK": read_number(search["top"], "number of chunks", 20),
        "threshold": _read_part(search["threshold"], "threshold"),
        "diversity": _read_part(search["diversity"], "diversity"),
        "filter": parse_object(search["filter"], "filter"),
    }


def _read_part(text: str, field: str) -> float:
    """Returns a number from 0 to 1. Raises BadRequest for anything else."""
    try:
        number = float(text or 0)
    except ValueError as exc:
        raise refuse_field(field, "Type a number from 0 to 1.") from exc
    if not 0 <= number <= 1:
        raise refuse_field(field, "Type a number from 0 to 1.")
    return number


async def _place_chunks(visit: Visit, chunks: list[dict[str, Any]], question: str) -> list[dict[str, Any]]:
    words = set(choose_words(question))
    return [await _place_chunk(visit, chunk, words) for chunk in chunks]


async def _place_chunk(visit: Visit, chunk: dict[str, Any], words: set[str]) -> dict[str, Any]:
    """Adds the text around a chunk in its document, and marks the words of the question in it."""
    first = max(chunk["start"] - _AROUND, 0)
    document_names = {
        "app_id": visit.parts["app"],
        "name": visit.parts["collection"],
        "document_id": chunk["documentId"],
    }
    try:
        part = await visit.call("rag_read", **document_names, offset=first, limit=chunk["end"] - first + _AROUND)
        text = part["text"]
    except NotFound:
        # Deleted since it was found.
        text = ""
    begin, end = chunk["start"] - first, chunk["end"] - first
    if text[begin:end] != chunk["text"]:
        # Replaced since it was found: only the chunk itself can be shown.
        return {**chunk, "before": "", "pieces": _mark_words(chunk["text"], words), "after": ""}
    return {**chunk, "before": text[:begin], "pieces": _mark_words(chunk["text"], words), "after": text[end:]}


def _mark_words(text: str, words: set[str]) -> list[tuple[str, bool]]:
    """Cuts a text into pieces, each with whether it is a word of the question, compared as searches do."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    for start, end, word in find_words(text):
        if word in words:
            pieces += [(text[position:start], False), (text[start:end], True)]
            position = end
    return [*pieces, (text[position:], False)]


PAGES = (Page(PATH, "Search a collection", "collection_search.html", show_search),)
FORMS = (Form(PATH + "/answer", answer, "collection_search.html"),)
