"""Templates are found by everybody; what is not offered is like what is not there."""

import pytest

from tests.statement_count import count_statements
from tests.tools.templates.conftest import EU, NOTES, Gallery


async def test_everybody_finds_what_is_offered(gallery: Gallery) -> None:
    app = await gallery.offer("support-desk", region=EU)
    await gallery.apply(app, notes=NOTES)
    page = await gallery.do("GET", "/v1/templates", headers={})
    [item] = page["items"]
    assert (page["total"], page["limit"], page["offset"]) == (1, 20, 0)
    assert (item["app_id"], item["name"], item["region"]) == (app, "support-desk", EU)
    assert (item["has_repo"], item["fork_count"]) == (True, 0)
    assert item["schema_summary"] == {"table_count": 1, "function_count": 0}
    assert item["owner_display_name"]
    detail = await gallery.do("GET", f"/v1/templates/{app}", headers={})
    assert {name: detail[name] for name in item} == item
    assert detail["tables"] == [{"name": "notes", "column_count": 2}]
    assert (detail["functions"], detail["forks_sample"]) == ([], [])


async def test_a_list_is_searched_by_the_beginning_of_the_name_by_region_and_by_pages(gallery: Gallery) -> None:
    for name in ("desk_a", "deskxb", "other"):
        await gallery.offer(name)
        gallery.clock.advance(1)
    await gallery.offer("desk_eu", region=EU)

    async def list_names(query: str) -> list[str]:
        return [item["name"] for item in (await gallery.do("GET", f"/v1/templates?{query}", headers={}))["items"]]

    assert await list_names("q=desk_") == ["desk_eu", "desk_a"]
    assert await list_names("q=DESK&sort=recent") == ["desk_eu", "deskxb", "desk_a"]
    assert await list_names(f"region={EU}") == ["desk_eu"]
    assert await list_names("region=nowhere") == []
    assert await list_names("limit=2&offset=1") == ["other", "deskxb"]
    refusal = await gallery.ask("GET", "/v1/templates?limit=51", headers={})
    assert refusal.status_code == 400


@pytest.mark.parametrize("state", ["private", "unlisted", "absent"])
async def test_what_is_not_offered_is_like_what_is_not_there(gallery: Gallery, state: str) -> None:
    app = await gallery.offer()
    if state == "absent":
        await gallery.publish(app, "private")
        app = "app_000000000000"
    else:
        await gallery.publish(app, "private" if state == "private" else "public", listed=False)
    for headers in ({}, gallery.ada.headers):
        answer = await gallery.ask("GET", f"/v1/templates/{app}", headers=headers)
        assert (answer.status_code, answer.json()) == (404, {"error": {"code": "TEMPLATE_NOT_FOUND"}})
    page = await gallery.do("GET", "/v1/templates", headers={})
    assert (page["items"], page["total"]) == ([], 0)
    for method, path in (("GET", "clone-preflight"), ("POST", "clone")):
        answer = await gallery.ask(
            method, f"/v1/templates/{app}/{path}", {} if method == "POST" else None, gallery.ada.headers
        )
        if state == "unlisted":
            # Who knows its address may clone it.
            assert answer.is_success, answer.text
        else:
            assert (answer.status_code, answer.json()) == (404, {"error": {"code": "TEMPLATE_NOT_FOUND"}})


async def test_a_stranger_who_asks_for_a_private_app_has_the_same_asked_as_for_none(gallery: Gallery) -> None:
    """The same statements in the same order, of which on Postgres each is counted: so no time tells them apart."""
    private_app = await gallery.offer("mine")
    await gallery.publish(private_app, "private")
    for method, path, headers in (
        ("GET", "", {}),
        ("GET", "", gallery.ada.headers),
        ("GET", "/clone-preflight", gallery.ada.headers),
        ("POST", "/clone", gallery.ada.headers),
    ):
        answers: list[tuple[list[str], int, bytes, set[str]]] = []
        for app in (private_app, "app_000000000000"):
            statements: list[list[str]] = []
            # The first call on a connection asks more, and so does one beside which a job runs.
            for _ in range(5):
                with count_statements() as count:
                    body: dict[str, object] | None = {} if method == "POST" else None
                    answer = await gallery.ask(method, f"/v1/templates/{app}{path}", body, headers)
                statements.append(count.texts)
            answers.append((min(statements, key=len), answer.status_code, answer.content, set(answer.headers)))
        assert answers[0] == answers[1], path
        assert answers[0][1] == 404


async def test_who_runs_an_app_may_look_at_it_and_clone_it_whether_it_is_offered_or_not(gallery: Gallery) -> None:
    app = await gallery.offer("mine")
    await gallery.publish(app, "private")
    assert (await gallery.do("GET", f"/v1/templates/{app}"))["name"] == "mine"
    copy = await gallery.clone(app, gallery.baobab.owner)
    assert (await gallery.do("GET", f"/v1/{copy}/config"))["name"] == "mine-2"


async def test_a_preflight_says_what_the_app_can_do_and_where_secrets_seem_to_be(gallery: Gallery) -> None:
    app = await gallery.baobab.create_app(name="risky")
    await gallery.push(
        app,
        **{"src/app.ts": 'fetch("https://Collect.example/x")\nconst key = "sk-ant-api03-abcdefghijklmnopqrstu1234"\n'},
    )
    await gallery.apply(app, settings={**NOTES, "_seed": True}, notes=NOTES)
    await gallery.do("POST", f"/v1/{app}/settings", {"id": 1, "text": "postgres://bot:hunter22@db.example/x"})
    await gallery.do("POST", f"/v1/{app}/notes", {"id": 1, "text": "postgres://bot:hunter22@db.example/x"})
    await gallery.do("PATCH", f"/v1/{app}/config/cors", {"allowed_origins": ["https://shop.example"]})
    trigger = {"event": "row.inserted", "table": "notes", "webhook": "https://hooks.example/in"}
    await gallery.do("PUT", f"/v1/{app}/triggers/copy", trigger)
    warnings = (await gallery.publish(app))["warnings"]
    assert any("src/app.ts" in warning and "line 2" in warning for warning in warnings), warnings
    preflight = await gallery.do("GET", f"/v1/templates/{app}/clone-preflight", headers=gallery.ada.headers)
    places = {(secret["place"], secret["kind"], secret["line"]) for secret in preflight["secrets"]}
    assert ("src/app.ts", "key of a model provider", 2) in places
    assert ("rows of settings.text", "password in an address", 1) in places
    assert not any("notes" in place for place, _, _ in places)
    assert preflight["hosts"] == ["collect.example", "hooks.example"]
    kinds = {(each["kind"], each["name"]) for each in preflight["abilities"]}
    assert kinds >= {("origin", "https://shop.example"), ("trigger", "copy")}
    assert (preflight["functions"], preflight["complete"], preflight["has_repo"]) == ([], True, True)
    assert "hunter22" not in str(preflight)


async def test_a_secret_is_found_far_down_in_a_long_file(gallery: Gallery) -> None:
    app = await gallery.baobab.create_app(name="long")
    await gallery.push(app, notes="line\n" * 50_000 + "AKIAABCDEFGHIJKLMNOP\n")
    review = await gallery.do("GET", f"/v1/{app}/clone-review")
    assert review["secrets"] == [{"place": "notes", "kind": "key of AWS", "line": 50_001}]
    assert review["complete"]
