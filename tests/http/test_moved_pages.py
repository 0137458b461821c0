"""Pages that have moved into the console: links in older messages still lead to them."""

from urllib.parse import urljoin

import pytest

from tests.conftest import Baobab

BROWSER = {"accept": "text/html,application/xhtml+xml"}
ID = "appr_4fT0qZ9sKx2LmN8vB1cD7eRw"


@pytest.mark.parametrize("prefix", ["", "/below/a/proxy"])
@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/", "/console"),
        ("/approvals", "/console"),
        ("/approvals/", "/console"),
        (f"/approvals/{ID}", f"/console/approvals/{ID}"),
        ("/programs", "/console/programs"),
        ("/programs/", "/console/programs"),
    ],
)
async def test_a_browser_is_led_to_the_console(baobab: Baobab, path: str, target: str, prefix: str) -> None:
    answer = await baobab.client.get(path, headers=BROWSER)
    assert answer.status_code == 307
    # Relative, so that it works below a proxy's prefix.
    assert (
        urljoin(f"http://testserver{prefix}{path}", answer.headers["location"]) == f"http://testserver{prefix}{target}"
    )


@pytest.mark.parametrize("hostile", ["..%2f..%2fevil", "%0d%0aset-cookie:a=b", "%2f%2fevil.example", "a%3fb"])
async def test_nobody_is_led_out_of_the_console(baobab: Baobab, hostile: str) -> None:
    answer = await baobab.client.get(f"/approvals/{hostile}", headers=BROWSER)
    if answer.status_code == 307:
        destination = urljoin("http://testserver/approvals/x", answer.headers["location"])
        assert destination.startswith("http://testserver/console/approvals/")
        assert "set-cookie" not in answer.headers
    else:
        assert answer.status_code == 404


async def test_a_refused_call_names_the_page_where_a_person_decides(baobab: Baobab) -> None:
    response = await baobab.client.post("/api-keys", json={"name": "agent", "approval": "write"}, headers=baobab.owner)
    agent = {"authorization": f"Bearer {response.json()['key']}"}
    refusal = await baobab.client.post("/init", json={"name": "shop"}, headers=agent)
    details = refusal.json()["error"]["details"]
    assert details["decide_at"].endswith(f"/console/approvals/{details['approval_id']}")
    # Whoever is not signed in is asked to, and led back.
    page = await baobab.client.get(details["decide_at"], headers=BROWSER, follow_redirects=True)
    assert page.status_code == 200
    assert "Sign in to Baobab" in page.text
    assert details["approval_id"] in page.text
