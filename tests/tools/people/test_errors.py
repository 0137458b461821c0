"""Every error of people, through REST and MCP: its body, its headers, and that nothing is charged for it."""

from typing import Any

import pytest

from tests.mcp_server.mcp_requests import call_tool, read_refusal, send_message
from tests.people import create_person
from tests.tools.people.conftest import CENT, Directory
from tests.tools.people.fakes import HANG_UP, NETWORK, Fake

PERSON = f"{NETWORK}/in/person-1"
NONE = {"x-people-credits-consumed": "0", "x-people-usd-charged": "0.000000"}
TOOLS = {
    "/search/person": "people_search_person",
    "/search/company": "people_search_company",
    "/profile": "people_profile",
    "/profile/email": "people_email_queue",
}


def build_body(path: str) -> dict[str, Any]:
    return {"networkProfileUrl": PERSON} if path.startswith("/profile") else {"query": "x"}


async def expect(directory: Directory, path: str, status: int, code: str, **fields: Any) -> dict[str, Any]:
    """Ask over REST and MCP, and compare what is answered; returns the body of REST."""
    before = await directory.read_balance()
    answer = await directory.ask(path, **build_body(path))
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["error"]) == (status, code), body
    assert {name: answer.headers[name] for name in NONE} == NONE
    assert answer.headers["x-people-provider"] in ("primary", "secondary")
    assert answer.headers.get("x-people-cached") == ("false" if path == "/profile" else None)
    assert {name: body[name] for name in fields} == fields
    result = await call_tool(directory.baobab, TOOLS[path], {"app_id": directory.app, **build_body(path)})
    # Over MCP, an error has the code that it has in every domain.
    assert read_refusal(result)["code"] == ("INSUFFICIENT_CREDITS" if status == 402 else code)
    assert await directory.read_balance() == before
    return body


@pytest.mark.parametrize("path", TOOLS)
async def test_a_balance_below_the_gate_is_refused_before_the_provider_is_asked(
    live: Directory, fake: Fake, path: str
) -> None:
    await live.give(5 * CENT - 1)
    await expect(live, path, 402, "insufficient_credits")
    assert fake.requests == []


@pytest.mark.parametrize("path", TOOLS)
@pytest.mark.parametrize("variables", [{"BAOBAB_PEOPLE_LIVE": ""}])
async def test_real_people_are_not_looked_up_before_the_operator_allows_it(
    live: Directory, fake: Fake, path: str
) -> None:
    body = await expect(live, path, 503, "people_disabled")
    assert "BAOBAB_PEOPLE_LIVE" in body["remediation"]
    assert fake.requests == []


ONLY_SECOND = dict.fromkeys(("BAOBAB_PEOPLE_PRIMARY", "BAOBAB_PEOPLE_PRIMARY_KEY", "BAOBAB_PEOPLE_PRIMARY_URL"), "")


@pytest.mark.parametrize("path", TOOLS)
@pytest.mark.parametrize(
    "variables",
    [
        {
            **ONLY_SECOND,
            "BAOBAB_PEOPLE_ROUTES": "search_person=primary,search_company=primary,profile=primary,"
            "profile_email=primary",
        }
    ],
)
async def test_a_slot_without_a_provider_is_named(live: Directory, path: str) -> None:
    await expect(live, path, 503, "provider_not_registered", slot="primary")


@pytest.mark.parametrize("variables", [ONLY_SECOND])
async def test_an_action_goes_to_the_slot_that_has_a_provider(live: Directory) -> None:
    assert (await live.ask("/search/person", query="x")).headers["x-people-provider"] == "secondary"
    await expect(live, "/profile/email", 503, "provider_action_unsupported", slot="secondary")


@pytest.mark.parametrize("variables", [{"BAOBAB_BASE_URL": ""}])
async def test_emails_need_an_address_for_the_callback(live: Directory, fake: Fake) -> None:
    body = await expect(live, "/profile/email", 503, "email_lookups_disabled")
    assert "BAOBAB_BASE_URL" in body["remediation"]
    assert fake.requests == []


@pytest.mark.parametrize("path", TOOLS)
async def test_others_than_the_owner_are_forbidden_and_no_app_is_not_found(
    live: Directory, fake: Fake, path: str
) -> None:
    stranger = await create_person(live.baobab, "stranger")
    answer = await live.ask(path, stranger.headers, **build_body(path))
    assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")
    assert {name: answer.headers[name] for name in NONE} == NONE
    anonymous = await live.baobab.client.post(f"/v1/{live.app}/people{path}", json=build_body(path))
    assert (anonymous.status_code, anonymous.headers["x-people-provider"]) == (401, "primary")
    missing = await live.baobab.client.post(
        f"/v1/app_zzzzzzzzzzzz/people{path}", json=build_body(path), headers=live.baobab.owner
    )
    assert (missing.status_code, missing.json()["error"]) == (404, "app_not_found")
    for app, headers, code in (
        (live.app, stranger.headers, "AUTH_INSUFFICIENT_PERMISSIONS"),
        ("app_zzzzzzzzzzzz", live.baobab.owner, "APP_NOT_FOUND"),
    ):
        result = await call_tool(live.baobab, TOOLS[path], {"app_id": app, **build_body(path)}, by=headers)
        assert read_refusal(result)["code"] == code
    request = {"name": TOOLS[path], "arguments": {"app_id": live.app, **build_body(path)}}
    unknown_key = {"authorization": f"Bearer bb_sk_{'x' * 40}"}
    assert (await send_message(live.baobab, "tools/call", request, by=unknown_key)).status == 401
    assert fake.requests == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/profile", {}),
        ("/profile", {"networkProfileUrl": "ada"}),
        ("/profile", {"networkProfileUrl": "ftp://network.example/in/ada"}),
        ("/profile", {"networkProfileUrl": "https://network.example"}),
        ("/profile/email", {"networkProfileUrl": ""}),
        ("/profile", {"networkProfileUrl": PERSON, "liveFetch": "yes"}),
        ("/search/person", {"pageSize": 0}),
        ("/search/person", {"pageSize": 101}),
        ("/search/company", {"employeeCountMax": "many"}),
        ("/search/person", {"nextToken": "made-up"}),
    ],
)
async def test_a_wrong_request_is_refused_and_costs_nothing(
    live: Directory, fake: Fake, path: str, body: dict[str, Any]
) -> None:
    answer = await live.ask(path, **body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request"), answer.text
    assert {name: answer.headers[name] for name in NONE} == NONE
    result = await call_tool(live.baobab, TOOLS[path], {"app_id": live.app, **body})
    # What a field's own rule refuses has a code of its own for each kind of fault.
    assert read_refusal(result)["code"].startswith("VALIDATION_")
    assert fake.requests == []


@pytest.mark.parametrize("path", TOOLS)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "provider_refused"),
        (401, "provider_unauthorized"),
        (402, "provider_unpaid"),
        (403, "provider_forbidden"),
        (422, "provider_unprocessable"),
        (429, "provider_busy"),
        (500, "provider_failed"),
        (503, "provider_failed"),
        (HANG_UP, "provider_failed"),
    ],
)
async def test_errors_of_the_provider_are_passed_on_and_recorded_and_not_charged(
    live: Directory, fake: Fake, path: str, status: int, code: str
) -> None:
    before = await live.read_balance()
    refusal = {"code": status, "description": "Please provide a valid URL", "name": "Refused"}
    fake.refusals = [(status, refusal, {"Retry-After": "7"})] * 4
    answer = await live.ask(path, **build_body(path))
    expected_status = status if status in range(400, 500) else 502
    assert (answer.status_code, answer.json()["code"]) == (expected_status, code), answer.text
    assert " " in answer.json()["error"]
    assert {name: answer.headers[name] for name in NONE} == NONE
    if status == 429:
        assert answer.headers["retry-after"] == "7"
    if status in (400, 422):
        assert "Please provide a valid URL" in answer.json()["error"]
    fake.refusals = [(status, refusal, {})] * 4
    result = await call_tool(live.baobab, TOOLS[path], {"app_id": live.app, **build_body(path)})
    assert read_refusal(result)["code"] == code
    assert await live.read_balance() == before
    action = {"/profile": "profile", "/profile/email": "profile_email_queue"}.get(path, f"search_{path[8:]}")
    assert await live.read_usage() == [(f"{action}_error", 0, "0.00")] * 2
    assert (await live.read("/email-lookups"))["lookups"] == []


async def test_what_is_not_json_is_a_failure_of_the_provider(live: Directory, fake: Fake) -> None:
    fake.refusals = [(200, "text", {}), (200, ["list"], {})]
    assert (await live.ask("/search/person", query="x")).status_code == 502


async def test_a_lookup_of_nobody_is_not_found(live: Directory) -> None:
    address = f"/v1/{live.app}/people/email-lookup/0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
    answer = await live.baobab.client.get(address, headers=live.baobab.owner)
    assert (answer.status_code, answer.json()["error"]) == (404, "lookup_not_found")
    assert answer.headers["x-people-provider"] == "primary"
    arguments = {"app_id": live.app, "lookup_id": address.rpartition("/")[2]}
    result = await call_tool(live.baobab, "people_email_lookup", arguments)
    assert read_refusal(result)["code"] == "lookup_not_found"
