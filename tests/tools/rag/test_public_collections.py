"""Public collections: who reads them, who changes them, and what never becomes public."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.installation import open_installation
from tests.tools.rag.conftest import ANN, BEN, FACTS, RagApp

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEARCH_IN_GRAPH: dict[str, Any] = {
    "spec_version": 1,
    "entry": "find",
    "nodes": {
        "find": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "rag_query"},
            "args_template": {"name": "{{ input.collection }}", "query": "{{ input.question }}"},
            "output_key": "found",
        },
        "done": {"type": "end", "output_template": "{{ state.found.chunks }}"},
    },
    "edges": [{"from": "find", "to": "done"}],
    "tools": {"builtin": ["rag_query"]},
}


async def visit(app: RagApp, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    """A request without a credential."""
    url = f"/v1/{app.id}/rag/collections{path}"
    return await app.baobab.client.request(method, url, json=body, headers=headers)


async def ask_owner(app: RagApp, method: str, path: str, body: Any = None) -> Any:
    answer = await app.baobab.client.request(method, f"/v1/{app.id}{path}", json=body, headers=app.baobab.owner)
    assert answer.is_success, answer.text
    return answer.json()


async def fill(app: RagApp) -> str:
    """A collection in each access mode, with one document; returns the id of the public one's."""
    for mode in ("private", "shared", "custom", "public"):
        await app.create(mode, accessMode=mode)
        document_id = await app.ingest(FACTS["trees"], to=mode)
    return document_id


async def test_visitors_read_public_collections_and_no_others(app: RagApp) -> None:
    document_id = await fill(app)
    anon_key = (await ask_owner(app, "GET", "/config"))["anon_key"]
    for headers in ({}, {"apikey": anon_key}, {"authorization": f"Bearer {anon_key}"}):
        assert [each["name"] for each in (await visit(app, "GET", "", **headers)).json()] == ["public"]
        assert (await visit(app, "GET", "/public", **headers)).json()["documentCount"] == 1
        (document,) = (await visit(app, "GET", "/public/documents", **headers)).json()
        assert document["id"] == document_id
        assert (await visit(app, "GET", f"/public/documents/{document_id}", **headers)).json() == document
        text = await visit(app, "GET", f"/public/documents/{document_id}/text", **headers)
        assert text.json()["text"] == FACTS["trees"]
        for mode in ("hybrid", "vector", "text"):
            answer = await visit(app, "POST", "/public/query", {"query": "water trunks", "mode": mode}, **headers)
            assert [chunk["documentId"] for chunk in answer.json()["chunks"]] == [document_id], mode
        for name in ("private", "shared", "custom", "nothing"):
            for method, path, body in (
                ("GET", "", None),
                ("GET", "/documents", None),
                ("GET", f"/documents/{document_id}", None),
                ("GET", f"/documents/{document_id}/text", None),
                ("POST", "/query", {"query": "water"}),
            ):
                refusal = await visit(app, method, f"/{name}{path}", body, **headers)
                assert (refusal.status_code, refusal.json()["error"]["code"]) == (401, "AUTH_REQUIRED"), (name, path)
    other_key = await app.baobab.client.get(f"/v1/{await app.baobab.create_app()}/config", headers=app.baobab.owner)
    refusal = await visit(app, "GET", "/public", apikey=other_key.json()["anon_key"])
    assert refusal.status_code in (401, 403)


async def test_visitors_change_nothing_and_spend_nothing(app: RagApp) -> None:
    document_id = await fill(app)
    case = {"query": "water", "relevant": [document_id]}
    for method, path, body in (
        ("POST", "", {"name": "mine"}),
        ("PATCH", "/public", {"description": "mine"}),
        ("DELETE", "/public", None),
        ("POST", "/public/ingest", {"text": "mine"}),
        ("PUT", f"/public/documents/{document_id}", {"text": "mine"}),
        ("DELETE", f"/public/documents/{document_id}", None),
        ("POST", "/public/evaluate", {"cases": [case]}),
        ("POST", "/public/reindex", {}),
    ):
        assert (await visit(app, method, path, body)).status_code == 401, (method, path)
    for option in ({"synthesize": True}, {"rerank": True}, {"synthesize": True, "stream": True}):
        refusal = await visit(app, "POST", "/public/query", {"query": "water", **option})
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_FORBIDDEN")


async def test_users_read_a_public_collection_and_add_nothing_to_it(app: RagApp) -> None:
    document_id = await fill(app)
    assert await app.find("water", ANN, of="public") == [document_id]
    assert (await app.request("POST", "/public/ingest", ANN, json={"text": "mine"})).status_code == 403
    for method, body in (("PUT", {"text": "mine"}), ("DELETE", None)):
        refusal = await app.request(method, f"/public/documents/{document_id}", ANN, json=body)
        assert refusal.status_code == 403, method


@pytest.mark.parametrize("mode", ["private", "shared"])
async def test_documents_of_users_never_become_public(app: RagApp, mode: str) -> None:
    await app.create("facts", accessMode=mode)
    document_id = await app.ingest(FACTS["bread"], BEN)
    refusal = await app.request("PATCH", "/facts", json={"accessMode": "public"})
    assert (refusal.status_code, refusal.json()["error"]["details"]) == (409, {"documents": 1})
    assert (await visit(app, "GET", "/facts")).status_code == 401
    assert (await app.request("DELETE", f"/facts/documents/{document_id}")).status_code == 204
    assert (await app.request("PATCH", "/facts", json={"accessMode": "public"})).status_code == 200
    assert (await visit(app, "GET", "/facts")).status_code == 200


async def test_an_app_for_signed_in_users_has_no_visitors(app: RagApp) -> None:
    await fill(app)
    await ask_owner(app, "PATCH", "/config/access-mode", {"access_mode": "authenticated"})
    assert (await visit(app, "POST", "/public/query", {"query": "water"})).status_code == 401


async def test_whoever_opens_a_collection_or_its_app_is_told_what_is_open(app: RagApp) -> None:
    collection = await app.create("facts", accessMode="public")
    assert collection["warnings"] == ["Anyone may read every document of `facts` without signing in."]
    sentence = "The collection `facts`: anyone without signing in may read every document."
    assert (await ask_owner(app, "GET", "/config"))["open_collections"] == [sentence]
    for path, body in (
        ("/config/access-mode", {"access_mode": "public"}),
        ("/config/visibility", {"visibility": "public"}),
    ):
        assert (await ask_owner(app, "PATCH", path, body))["warnings"] == [sentence]
    collection = (await app.request("PATCH", "/facts", json={"accessMode": "private"})).json()
    assert "warnings" not in collection
    assert (await ask_owner(app, "GET", "/config"))["open_collections"] == []


@pytest.mark.parametrize("name", ["accessMode", "access_mode"])
async def test_a_key_with_limits_opens_no_collection(app: RagApp, name: str) -> None:
    await app.create("facts")
    body = {"name": "limited", "key_scope": "app", "target_app_id": app.id, "toolsets": ["rag"]}
    key = (await app.baobab.client.post("/api-keys", json=body, headers=app.baobab.owner)).json()["key"]
    base, headers = f"/v1/{app.id}/rag/collections", {"authorization": f"Bearer {key}"}
    for method, path, fields in (("POST", "", {"name": "b"}), ("PATCH", "/facts", {})):
        answer = await app.baobab.client.request(
            method, f"{base}{path}", json={**fields, name: "public"}, headers=headers
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "AUTH_KEY_LIMITED")


async def test_a_public_agent_searches_a_public_collection_for_a_visitor(app: RagApp) -> None:
    await fill(app)
    agent = {"name": "helper", "visibility": "public", "safety_acknowledged": True, "graph_spec": SEARCH_IN_GRAPH}
    await ask_owner(app, "POST", "/agents", agent)
    headers = {"apikey": (await ask_owner(app, "GET", "/config"))["anon_key"]}
    runs = {}
    for name in ("public", "private"):
        body = {"input": {"collection": name, "question": "Where do trees keep water?"}}
        answer = await app.baobab.client.post(f"/v1/{app.id}/public/agents/helper/runs", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        await app.run_jobs()
        path = f"/v1/{app.id}/public/runs/{answer.json()['run_id']}"
        runs[name] = (await app.baobab.client.get(path, headers=headers)).json()["run"]
    assert runs["public"]["status"] == "completed", runs["public"]
    assert [chunk["text"] for chunk in runs["public"]["output"]] == [FACTS["trees"]]
    assert (runs["private"]["status"], runs["private"]["output"]) == ("failed", None)


@pytest.mark.own_installation
async def test_searches_of_visitors_do_not_use_up_what_the_owner_needs(tmp_path: Path) -> None:
    async with open_installation(tmp_path, {"BAOBAB_PLAN": "playground"}) as baobab:
        app_id = await baobab.create_app()
        base = f"/v1/{app_id}/rag/collections"
        answer = await baobab.client.post(base, json={"name": "facts", "accessMode": "public"}, headers=baobab.owner)
        assert answer.status_code == 201
        statuses = {(await baobab.client.get(f"{base}/facts")).status_code for _ in range(151)}
        assert statuses == {200, 429}
        assert (await baobab.client.get(f"{base}/facts", headers=baobab.owner)).status_code == 200
