"""The console's pages of collections: documents and how far they are, searches, answers and evaluations."""

import json
import re
from typing import Any

from tests.http.console.test_console import HOSTILE
from tests.http.console.test_runs import Runner
from tests.jobs import run_due_jobs

TREES = "# Trees\n\nBaobabs store water in their trunks. They live for a thousand years.\n"


async def make(visitor: Runner, **fields: str) -> str:
    """The path of a new collection's page."""
    lists = f"/console/apps/{visitor.app_id}/collections"
    page = await visitor.open(lists)
    response = await visitor.send(f"{lists}/create", page, name="facts", **fields)
    assert response.status_code == 303, response.text
    path: str = response.headers["location"]
    return path


async def add(visitor: Runner, path: str, **fields: str) -> None:
    assert (await visitor.send(f"{path}/add", await visitor.open(path), **fields)).status_code == 303


async def run_jobs(visitor: Runner) -> None:
    for stores in visitor.baobab.application.services.regions.values():
        await run_due_jobs(visitor.baobab.application, stores.database)


def find_documents(text: str) -> list[str]:
    return re.findall(r'id="document-([0-9a-f-]{36})"', text)


async def test_a_text_is_added_watched_read_replaced_and_deleted(visitor: Runner) -> None:
    path = await make(visitor, description=HOSTILE, mode="shared")
    await add(visitor, path, text=TREES, filename="trees.md", metadata='{"lang": "en"}')
    waiting = (await visitor.open(path)).text
    assert "0 of 1 document is ready" in waiting
    assert "data-again" in waiting
    await run_jobs(visitor)
    ready = (await visitor.open(path)).text
    assert "1 of 1 document is ready" in ready
    assert "data-again" not in ready
    assert "<script>alert" not in ready
    (document,) = find_documents(ready)
    page = await visitor.open(f"{path}/documents/{document}")
    assert "Baobabs store water" in page.text
    assert (await visitor.send(f"{path}/documents/{document}/replace", page, text=HOSTILE)).status_code == 303
    await run_jobs(visitor)
    page_text = (await visitor.open(f"{path}/documents/{document}")).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page_text
    assert "\u202e" not in page_text
    assert (await visitor.send(f"{path}/documents/{document}/delete", page)).status_code == 303
    assert "There is no document yet" in (await visitor.open(path)).text


async def test_a_file_is_added_and_what_cannot_be_read_says_why(visitor: Runner) -> None:
    path = await make(visitor)
    files = f"/v1/storage/{visitor.app_id}/objects"
    for name, kind, content in (("a.txt", "text/plain", "Harbours"), ("b.pdf", "application/pdf", "no pdf")):
        body = {"filename": name, "contentType": kind, "content": content}
        answer = await visitor.baobab.client.post(files.removeprefix("/v1"), json=body, headers=visitor.baobab.owner)
        assert answer.status_code < 300, answer.text
    page = (await visitor.open(path)).text
    for file in re.findall(r'<option value="([0-9a-f-]{36})"', page):
        await add(visitor, path, file=file)
    await run_jobs(visitor)
    page_text = (await visitor.open(f"{path}?status=failed")).text
    assert "1 of 2 documents are ready" in page_text
    assert "; 1 failed" in page_text
    (document,) = find_documents(page_text)
    reason = re.search(r'class="soft caution">([^<]+)<', page_text)
    assert reason is not None
    assert reason[1] in (await visitor.open(f"{path}/documents/{document}")).text
    assert "1 failed" in (await visitor.open(f"/console/apps/{visitor.app_id}/collections")).text


async def test_a_search_shows_chunks_in_their_document_with_the_words_marked(visitor: Runner) -> None:
    path = await make(visitor)
    await add(visitor, path, text=TREES + "\n# Ships\n\nHarbours unload cargo. " + HOSTILE, filename="all.md")
    await add(visitor, path, text="Bread rises.", metadata='{"topic": "bread"}')
    await run_jobs(visitor)
    page_text = (await visitor.open(f"{path}/search?q=Which tree stores WÄTER?&top=1")).text
    assert "<mark>water</mark>" in page_text
    assert '<span class="around">' in page_text
    assert "Harbours unload cargo" in page_text
    assert "<script>alert" not in page_text
    assert "\u202e" not in page_text
    filtered_page_text = (await visitor.open(f'{path}/search?q=water&filter={{"topic": "bread"}}&mode=vector')).text
    assert "Bread rises" in filtered_page_text
    assert "Baobabs store" not in filtered_page_text
    assert "No chunk matches" in (await visitor.open(f'{path}/search?q=water&filter={{"topic": "none"}}')).text
    for query in ("top=0", "top=x", "top=99999", "threshold=2", "threshold=nan", "filter=[", "filter=[]", "mode=all"):
        page = await visitor.baobab.client.get(f"{path}/search?q=x&{query}", headers=visitor.browser)
        assert page.status_code == 400, query


async def test_an_answer_names_the_chunks_on_which_each_sentence_stands(visitor: Runner) -> None:
    path = await make(visitor)
    await add(visitor, path, text=TREES)
    await run_jobs(visitor)
    page = await visitor.open(f"{path}/search?q=water")
    response = await visitor.send(f"{path}/search/answer", page, q="What do baobabs store?", model="baobab/echo")
    assert response.status_code == 200, response.text
    assert "<h2>Answer" in response.text
    assert 'id="chunk-1"' in response.text


async def test_a_model_puts_found_chunks_in_order_before_it_answers_or_instead(visitor: Runner) -> None:
    path = await make(visitor)
    await add(visitor, path, text=TREES)
    await add(visitor, path, text="Bread rises because of wild yeast.")
    await run_jobs(visitor)
    page = await visitor.open(f"{path}/search?q=water&rerank=yes")
    assert "put in order by a model" not in page.text
    arguments = {"q": "What do baobabs store?", "model": "baobab/echo"}
    response = await visitor.send(f"{path}/search/answer", page, **arguments, do="order")
    assert "2, put in order by a model" in response.text
    assert "<h2>Answer" not in response.text
    answered_response = await visitor.send(f"{path}/search/answer", page, **arguments, rerank="yes")
    assert "2, put in order by a model" in answered_response.text
    assert "<h2>Answer" in answered_response.text
    (trees, *_) = find_documents((await visitor.open(path)).text)
    lines = json.dumps({"query": "What stores water?", "relevant": [trees]})
    evaluation = await visitor.open(f"{path}/evaluation")
    fields = {"questions": lines, "top": "10", "mode": "vector", "model": "baobab/echo", "rerank": "yes"}
    measured_response = await visitor.send(f"{path}/evaluation/measure", evaluation, **fields)
    assert measured_response.status_code == 200, measured_response.text
    assert 'name="rerank" type="checkbox" value="yes" checked' in measured_response.text


async def test_questions_are_measured_side_by_side(visitor: Runner) -> None:
    path = await make(visitor)
    await add(visitor, path, text=TREES)
    await add(visitor, path, text="Bread rises because of wild yeast.")
    await run_jobs(visitor)
    bread, trees = find_documents((await visitor.open(path)).text)
    page = await visitor.open(f"{path}/evaluation")
    cases: list[dict[str, Any]] = [
        {"query": "What stores water? " + HOSTILE, "relevant": [trees]},
        {"query": "Why does bread rise?", "relevant": [bread, "11111111-1111-4111-8111-111111111111"]},
    ]
    lines = "\n".join(json.dumps(case) for case in cases) + "\n\n"
    response = await visitor.send(f"{path}/evaluation/measure", page, questions=lines, top="10")
    assert response.status_code == 200, response.text
    assert "Recall@10" in response.text
    assert response.text.count("<td>0.750</td>") == 3
    assert "11111111-1111-4111-8111-111111111111</code>" in response.text
    assert "<script>alert" not in response.text
    wrong = ("", "[", "[]", "{}", '{"query": 1, "relevant": ["x"]}', '{"query": "a", "relevant": "b"}', "[" * 100_000)
    for questions in wrong:
        refusal = await visitor.send(f"{path}/evaluation/measure", page, questions=questions)
        assert refusal.status_code == 400, questions[:50]


async def test_a_collection_is_changed_made_anew_and_deleted(visitor: Runner) -> None:
    path = await make(visitor)
    await add(visitor, path, text=TREES)
    await run_jobs(visitor)
    page = await visitor.open(path)
    assert (await visitor.send(f"{path}/change", page, description="All", mode="custom")).status_code == 303
    assert (await visitor.send(f"{path}/reindex", page, size="100", overlap="10")).status_code == 303
    assert (await visitor.send(f"{path}/reindex", page, size="x", overlap="10")).status_code == 400
    await run_jobs(visitor)
    page_text = (await visitor.open(path)).text
    assert '<option value="custom" selected>' in page_text
    assert 'value="100"' in page_text
    lists = f"/console/apps/{visitor.app_id}/collections"
    assert "All" in (await visitor.open(lists)).text
    assert (await visitor.send(f"{path}/delete", page)).status_code == 303
    assert "There is no collection yet" in (await visitor.open(lists)).text
    assert (await visitor.baobab.client.get(path, headers=visitor.browser)).status_code == 404


async def test_collections_of_another_are_not_there(visitor: Runner) -> None:
    await make(visitor)
    other = "app_00000000-0000-4000-8000-000000000000"
    for path in ("", "/facts", "/facts/search?q=x", "/facts/evaluation"):
        page = await visitor.baobab.client.get(f"/console/apps/{other}/collections{path}", headers=visitor.browser)
        assert page.status_code in (403, 404), path


async def test_an_admin_marks_a_collection_as_the_apps_own_text_where_it_is_shown(visitor: Runner) -> None:
    path = await make(visitor)
    page = await visitor.open(path)
    assert "own text</span>" not in page.text
    response = await visitor.send(f"{path}/change", page, description="", mode="private", own_text="yes")
    assert response.status_code == 303, response.text
    page = await visitor.open(path)
    assert '<span class="tag">own text</span>' in page.text
    assert (await visitor.send(f"{path}/change", page, description="", mode="private")).status_code == 303
    assert '<span class="tag">own text</span>' not in (await visitor.open(path)).text
