"""The pages of approvals are complete, offline and locked down; what a proposer wrote is never part of them."""

import re
from collections.abc import Iterator
from urllib.parse import urljoin

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from baobab.http.page_routes import approval_routes, docs_routes, program_routes
from tests.conftest import Baobab
from tests.http.test_docs_page import POLICY, Page

PAGE = "/approvals/appr_4fT0qZ9sKx2LmN8vB1cD7eRw"
SCRIPTS = ("/approvals/approval.js", "/approvals/signin.js")
CONTENT_TYPES = {
    PAGE: "text/html; charset=utf-8",
    "/approvals/": "text/html; charset=utf-8",
    "/approvals/approval.css": "text/css; charset=utf-8",
    **dict.fromkeys(SCRIPTS, "text/javascript; charset=utf-8"),
}

each_file = pytest.mark.parametrize("path", CONTENT_TYPES)


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(Starlette(routes=[*docs_routes(), *approval_routes(), *program_routes()])) as client:
        yield client


@each_file
def test_each_file_is_served_with_its_type_and_the_whole_policy(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == CONTENT_TYPES[path]
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("prefix", ["", "/below/a/proxy"])
def test_everything_the_page_refers_to_is_served_beside_it_also_below_a_proxy_prefix(
    client: TestClient, prefix: str
) -> None:
    links = [link for link in Page(client.get(PAGE).text).links if not link.startswith(("data:", "#"))]
    assert links
    for path in (PAGE, "/approvals/"):
        for link in links:
            found = urljoin(f"http://testserver{prefix}{path}", link)
            assert found.startswith(f"http://testserver{prefix}/")
            assert client.get(found.replace(prefix, "", 1) if prefix else found).status_code == 200


def test_the_list_is_found_without_its_slash(client: TestClient) -> None:
    answer = client.get("/approvals", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "approvals/")


def test_the_page_runs_nothing_in_place_and_its_script_finds_every_part_that_it_names(client: TestClient) -> None:
    page = Page(client.get(PAGE).text)
    assert page.inline == []
    assert len(page.ids) == len(set(page.ids))
    named = {name for path in SCRIPTS for name in re.findall(r'(?:byId|show)\("([\w-]+)"', client.get(path).text)}
    assert named
    assert named <= set(page.ids)


@pytest.mark.parametrize("path", SCRIPTS)
def test_text_becomes_no_markup_and_the_credential_is_kept_nowhere(client: TestClient, path: str) -> None:
    script = client.get(path).text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|setAttribute", script)
    assert not re.search(r"localStorage|sessionStorage|indexedDB|\.cookie", script)
    assert not re.findall(r"(?:https?|wss?):/?/[\w\[]", script)


async def test_the_server_serves_it_where_refused_calls_say_that_a_person_decides(baobab: Baobab) -> None:
    made = await baobab.client.post("/api-keys", json={"name": "agent", "approval": "write"}, headers=baobab.owner)
    agent = {"authorization": f"Bearer {made.json()['key']}"}
    refused = await baobab.client.post("/init", json={"name": "shop"}, headers=agent)
    page = await baobab.client.get(refused.json()["error"]["details"]["decide_at"])
    assert (page.status_code, page.headers["content-security-policy"]) == (200, POLICY)
    assert (await baobab.client.get(f"{PAGE}/../../v1")).status_code == 404
