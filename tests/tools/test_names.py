"""Names of people, organisations, keys and agents hold nothing that cannot be seen or that turns the text around it."""

import pytest

from tests.conftest import Baobab
from tests.people import create_person

UNSEEN = {
    "right to left": "pay\u202egnp",
    "isolate": "a\u2066b",
    "no width": "ad\u200bmin",
    "line end": "a\nb",
    "blank letter": "a\u3164b",
}


@pytest.mark.parametrize("name", UNSEEN.values(), ids=UNSEEN)
async def test_a_name_with_what_cannot_be_seen_is_refused_whatever_it_names(baobab: Baobab, name: str) -> None:
    app, ada = await baobab.create_app(), await create_person(baobab, "ada")
    key = (await baobab.client.post("/api-keys", json={"name": "k"}, headers=baobab.owner)).json()["key_id"]
    graph = {"spec_version": 1, "entry": "done", "nodes": {"done": {"type": "end"}}, "edges": []}
    signup = {"email": "x@example.com", "password": "A long enough password 1!", "name": name}
    for method, path, body in (
        ("POST", "/platform/signup", signup),
        ("PATCH", "/platform/me", {"name": name}),
        ("POST", "/v1/organizations", {"name": name}),
        ("POST", "/api-keys", {"name": name}),
        ("PATCH", f"/api-keys/{key}", {"name": name}),
        ("POST", "/init", {"name": name}),
        ("PATCH", f"/apps/{app}", {"name": name}),
        ("POST", f"/v1/{app}/agents", {"name": name, "graph_spec": graph}),
        ("POST", f"/v1/{app}/agents", {"name": "a", "display_name": name, "graph_spec": graph}),
        ("POST", f"/v1/{app}/mcp-servers", {"name": name, "url": "https://mcp.example/"}),
    ):
        by = ada.headers if path in ("/platform/me", "/v1/organizations") else baobab.owner
        refusal = await baobab.client.request(method, path, json=body, headers=by)
        assert refusal.status_code == 400, (path, refusal.text)
        assert name not in refusal.text


async def test_a_name_in_any_script_is_taken(baobab: Baobab) -> None:
    for name in ("Amina Müller", "公司", "شركة", "Ωmega ✓"):
        response = await baobab.client.post("/api-keys", json={"name": name}, headers=baobab.owner)
        assert (response.status_code, response.json()["name"]) == (201, name)


async def test_a_program_is_known_by_what_can_be_seen_of_its_name(baobab: Baobab) -> None:
    body = {"client_name": "Cla\u202eude\u3164 \u2800Code", "redirect_uris": ["http://127.0.0.1:3000/cb"]}
    response = await baobab.client.post("/oauth/register", json=body)
    assert response.json()["client_name"] == "Claude Code"
