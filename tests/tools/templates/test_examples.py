"""The examples are deployed, cloned and used, as their pages say."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import run_due_jobs
from tests.tools.templates.conftest import Gallery

EXAMPLES = Path(__file__).parents[3] / "examples"
ONE, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
Headers = dict[str, str]


def load_deployment() -> Any:
    spec = importlib.util.spec_from_file_location("deploy", EXAMPLES / "deploy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def deploy(gallery: Gallery, name: str) -> str:
    requests, answer = load_deployment().deploy(EXAMPLES / name, name), None
    while True:
        try:
            method, path, body = requests.send(answer)
        except StopIteration as end:
            app: str = end.value
            await run_due_jobs(gallery.baobab.application)
            return app
        if isinstance(body, bytes):
            response = await gallery.baobab.client.request(method, path, content=body)
            assert response.is_success, response.text
            answer = None
        else:
            answer = await gallery.do(method, path, body)


async def open_clone(gallery: Gallery, name: str, agent: str) -> tuple[str, Headers, Headers]:
    """Deploys an example, and returns a clone of it whose agent is switched on, with two of its users."""
    template, ada = await deploy(gallery, name), gallery.ada.headers
    preflight = await gallery.do("GET", f"/v1/templates/{template}/clone-preflight", headers=ada)
    assert (preflight["secrets"], preflight["hosts"]) == ([], [])
    clone = await gallery.clone(template, name=f"my-{name}")
    review = await gallery.do("GET", f"/v1/{clone}/clone-review", headers=ada)
    assert [(each["kind"], each["name"]) for each in review["abilities"] if not each["is_on"]] == [("app_right", agent)]
    state = await gallery.do("GET", f"/v1/{clone}/agents/{agent}", headers=ada)
    graph = state.get("agent", state)["graph_spec"]
    await gallery.do("PATCH", f"/v1/{clone}/agents/{agent}", {"status": "active", "graph_spec": graph}, ada)
    one, other = [await gallery.baobab.user_headers(clone, user) for user in (ONE, OTHER)]
    return clone, one, other


async def start(gallery: Gallery, clone: str, agent: str, headers: Headers, **run_input: Any) -> str:
    """Starts a run of a user, which then waits or has ended, and returns its path."""
    base = f"/v1/{clone}/agents/{agent}/runs"
    run = await gallery.do("POST", base, {"input": run_input}, headers)
    await run_due_jobs(gallery.baobab.application)
    return f"{base}/{run['run_id']}"


async def decide(gallery: Gallery, path: str, headers: Headers, **body: Any) -> str:
    """Approves the one call that waits, as the owner of the clone, and returns how the run ended."""
    ada = gallery.ada.headers
    [waiting] = (await gallery.do("GET", "/v1/approvals?status=pending", headers=ada))["approvals"]
    await gallery.do("POST", f"/v1/approvals/{waiting['id']}/approve", body, ada)
    await run_due_jobs(gallery.baobab.application)
    return await read_status(gallery, path, headers)


async def read_status(gallery: Gallery, path: str, headers: Headers) -> str:
    status: str = (await gallery.do("GET", path, headers=headers))["run"]["status"]
    return status


@pytest.mark.parametrize("file", ["api.js", "style.css", "_headers"])
def test_the_sites_of_all_examples_share_their_common_files(file: str) -> None:
    texts = {(site / file).read_text() for site in EXAMPLES.glob("*/site")}
    assert len(texts) == 1


async def test_the_support_desk_is_cloned_and_a_refund_is_decided_in_the_clone(gallery: Gallery) -> None:
    desk, customer, stranger = await open_clone(gallery, "support-desk", "desk")
    [item] = (await gallery.do("GET", "/v1/templates?q=support", headers={}))["items"]
    assert item["schema_summary"] == {"table_count": 2, "function_count": 1}
    topics = await gallery.do("GET", f"/v1/{desk}/topics?order=slug", headers=customer)
    assert [topic["slug"] for topic in topics] == ["delivery", "returns"]
    row = await gallery.do("POST", f"/v1/{desk}/tickets", {"topic": "returns", "text": "It is broken."}, customer)
    assert await gallery.do("GET", f"/v1/{desk}/tickets", headers=stranger) == []
    # A customer cannot ask for the money of another.
    strangers_run = await start(gallery, desk, "desk", stranger, ticket=str(row["id"]))
    assert await read_status(gallery, strangers_run, stranger) == "failed"
    run = await start(gallery, desk, "desk", customer, ticket=str(row["id"]))
    assert await decide(gallery, run, customer, data={"amount": 20}) == "completed"
    [stored_ticket] = await gallery.do("GET", f"/v1/{desk}/tickets", headers=customer)
    assert stored_ticket["refunded"] == 20
    answer = await gallery.do("POST", f"/v1/{desk}/rag/collections/handbook/query", {"query": "refund"}, customer)
    assert "30 days" in str(answer)


async def test_the_support_desk_says_where_to_write_once_its_variable_is_filled_in(gallery: Gallery) -> None:
    desk, customer, _ = await open_clone(gallery, "support-desk", "desk")
    ada = gallery.ada.headers
    review = await gallery.do("GET", f"/v1/{desk}/clone-review", headers=ada)
    assert review["unfilled_env_vars"] == {"contact": ["DESK_EMAIL"]}
    assert await gallery.do("GET", f"/v1/{desk}/fn/contact", headers=customer) == {"email": None}
    variables = {"DESK_EMAIL": "help@shop.example"}
    await gallery.do("PATCH", f"/v1/{desk}/functions/contact/env", {"envVars": variables}, ada)
    assert await gallery.do("GET", f"/v1/{desk}/fn/contact", headers=customer) == {"email": "help@shop.example"}
    review = await gallery.do("GET", f"/v1/{desk}/clone-review", headers=ada)
    assert review["unfilled_env_vars"] is None


async def test_of_two_guests_one_gets_the_room_and_the_house_cancels_it_for_them(gallery: Gallery) -> None:
    house, guest, stranger = await open_clone(gallery, "bookings", "cancel")
    booking = {"room": "attic", "day": "2030-01-01", "hour": 9}
    row = await gallery.do("POST", f"/v1/{house}/bookings", booking, guest)
    answer = await gallery.ask("POST", f"/v1/{house}/bookings", booking, stranger)
    assert (answer.status_code, answer.json()["code"]) == (409, "23505")
    too_late = await gallery.ask("POST", f"/v1/{house}/bookings", {**booking, "hour": 20}, stranger)
    assert too_late.json()["code"] == "23514"
    for_another = {**booking, "hour": 10, "guest": ONE}
    assert (await gallery.ask("POST", f"/v1/{house}/bookings", for_another, stranger)).status_code == 403
    assert await gallery.do("GET", f"/v1/{house}/bookings", headers=stranger) == []
    assert (await gallery.ask("DELETE", f"/v1/{house}/bookings/{row['id']}", headers=guest)).status_code in (403, 404)
    strangers_run = await start(gallery, house, "cancel", stranger, booking=row["id"], reason="I want it.")
    assert await read_status(gallery, strangers_run, stranger) == "failed"
    run = await start(gallery, house, "cancel", guest, booking=row["id"], reason="I am ill.")
    assert len(await gallery.do("GET", f"/v1/{house}/bookings", headers=guest)) == 1
    assert await decide(gallery, run, guest) == "completed"
    await gallery.do("POST", f"/v1/{house}/bookings", booking, stranger)
    assert await gallery.do("GET", f"/v1/{house}/bookings", headers=guest) == []
    rules = await gallery.do("POST", f"/v1/{house}/rag/collections/house-rules/query", {"query": "dogs"}, guest)
    assert "garden room" in str(rules)


async def test_users_find_their_own_notes_and_read_those_that_are_shared(gallery: Gallery) -> None:
    book, writer, reader = await open_clone(gallery, "notes", "share")
    documents = f"/v1/{book}/rag/collections/notes"
    note = {"title": "Soup", "text": "Lentils, carrots and a spoon of cumin."}
    for headers, each in ((writer, note), (reader, {"title": "Bicycle", "text": "The chain wants oil."})):
        body = {"text": each["text"], "filename": each["title"]}
        document = await gallery.do("POST", f"{documents}/ingest", body, headers)
        await gallery.do("POST", f"/v1/{book}/notes", {"id": document["documentId"], **each}, headers)
    await run_due_jobs(gallery.baobab.application)
    for headers, title in ((writer, "Soup"), (reader, "Bicycle")):
        assert [each["title"] for each in await gallery.do("GET", f"/v1/{book}/notes", headers=headers)] == [title]
        answer = await gallery.do("POST", f"{documents}/query", {"query": "a recipe with lentils"}, headers)
        assert {chunk["filename"] for chunk in answer["chunks"]} == {title}
    [row] = await gallery.do("GET", f"/v1/{book}/notes", headers=writer)
    strangers_run = await start(gallery, book, "share", reader, note=row["id"])
    assert await read_status(gallery, strangers_run, reader) == "failed"
    run = await start(gallery, book, "share", writer, note=row["id"])
    assert await decide(gallery, run, writer) == "completed"
    titles = {each["title"] for each in await gallery.do("GET", f"/v1/{book}/notes", headers=reader)}
    assert titles == {"Soup", "Bicycle"}
    # To read is not to delete.
    assert (await gallery.ask("DELETE", f"/v1/{book}/notes/{row['id']}", headers=reader)).status_code in (403, 404)
    await gallery.do("DELETE", f"/v1/{book}/notes?id=eq.{row['id']}", headers=writer)
    assert (await gallery.ask("DELETE", f"{documents}/documents/{row['id']}", headers=writer)).is_success
