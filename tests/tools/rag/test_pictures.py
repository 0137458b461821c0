"""Scans and pictures of text as documents of a collection."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from tests.runtime.documents import samples
from tests.tools.rag.conftest import RagApp


async def ingest_file(app: RagApp, content: bytes, content_type: str) -> dict[str, Any]:
    """Stores a file, ingests it and returns the document as it is then."""
    body = {"filename": "a", "contentType": content_type, "content": b64encode(content).decode(), "encoding": "base64"}
    stored_body = (
        await app.baobab.client.post(f"/storage/{app.id}/objects", json=body, headers=app.baobab.owner)
    ).json()
    return await app.get(await app.ingest(storage_object_id=stored_body["id"]))


async def test_a_scanned_page_is_found_and_cited_with_its_page_and_place(app: RagApp) -> None:
    await app.create()
    source = samples.build_mixed_pdf(
        "Penguins swim in the sea",
        samples.draw_lines("Llamas carry wool", "over the mountains"),
        "Owls fly at night",
    )
    document = await ingest_file(app, source, "application/pdf")
    assert (document["status"], document["pages"], document["mediaType"]) == ("ready", 3, "application/pdf")
    text = (await app.request("GET", f"/facts/documents/{document['id']}/text")).json()["text"]
    assert text == "Penguins swim in the sea\n\nLlamas carry wool\nover the mountains\n\nOwls fly at night"
    result = await app.query("animals")
    assert {chunk["page"]: text[chunk["start"] : chunk["end"]] for chunk in result} == {
        1: "Penguins swim in the sea",
        2: "Llamas carry wool\nover the mountains",
        3: "Owls fly at night",
    }
    assert all(chunk["text"] == text[chunk["start"] : chunk["end"]] for chunk in result)


async def test_the_text_of_a_picture_is_found(app: RagApp) -> None:
    await app.create()
    picture = samples.encode_picture("PNG", samples.draw_lines("The password of the network is baobab-2026"))
    # What it is called does not matter.
    document = await ingest_file(app, picture, "image/jpeg")
    assert (document["status"], document["mediaType"], document["pages"]) == ("ready", "image/png", None)
    [chunk] = await app.query("Which password?")
    assert (chunk["text"], chunk["page"]) == ("The password of the network is baobab-2026", None)


@pytest.mark.parametrize(
    ("encode", "words"),
    [
        (lambda: samples.encode_picture("PNG", Image.new("RGB", (300, 200), "teal")), "The document has no text."),
        (lambda: samples.encode_black_square(30_000), "The picture has more than 50000000 pixels."),
    ],
    ids=["without text", "a bomb"],
)
async def test_a_picture_that_cannot_be_read_fails_in_words(
    app: RagApp, encode: Callable[[], bytes], words: str
) -> None:
    await app.create()
    document = await ingest_file(app, encode(), "image/png")
    assert (document["status"], document["errorMessage"], document["chunkCount"]) == ("failed", words, 0)
