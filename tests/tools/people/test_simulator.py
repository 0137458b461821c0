"""The simulator answers without a key, says that it does, and costs nothing."""

from pathlib import Path
from typing import Any

import pytest

from tests.mcp_server.mcp_requests import call_tool, read_refusal
from tests.tools.people.conftest import Directory, open_directory

ADA = "https://network.example/in/ada-adeyemi-0"


async def test_a_search_finds_invented_people_shows_its_price_and_costs_nothing(directory: Directory) -> None:
    before = await directory.read_balance()
    answer = await directory.ask("/search/person", currentRoleTitle="Software Engineer OR Nurse", pageSize=3)
    body = answer.json()
    assert (answer.status_code, body["simulated"], answer.headers["x-baobab-simulated"]) == (200, True, "true")
    assert body["usage"] == {"creditsConsumed": 7, "usdCharged": 0.0084}
    assert len(body["data"]["results"]) == 3
    assert all("(invented)" in result["profile"]["headline"] for result in body["data"]["results"])
    assert (answer.headers["x-people-provider"], answer.headers["x-people-credits-consumed"]) == ("primary", "7")
    assert answer.headers["x-people-usd-charged"] == "0.008400"
    assert "x-people-cached" not in answer.headers
    assert await directory.read_balance() == before
    (row,) = (await directory.read("/usage"))["rows"]
    assert (row["action"], row["usd_charged"], row["simulated"]) == ("search_person", "0.0084", True)


async def test_the_pages_follow_each_other_and_the_token_says_nothing_of_the_provider(directory: Directory) -> None:
    addresses: list[str] = []
    body = (await directory.ask("/search/person", query="people in Berlin", pageSize=4)).json()
    for _ in range(20):
        addresses += [result["networkProfileUrl"] for result in body["data"]["results"]]
        page = body["data"]["nextPage"]
        if page is None:
            break
        assert page.startswith(f"http://127.0.0.1:8000/v1/{directory.app}/people/search/person?next_token=")
        token = page.partition("next_token=")[2]
        body = (await directory.ask("/search/person", nextToken=token)).json()
    assert len(addresses) == len(set(addresses)) == body["data"]["totalResultCount"] == 11
    other = (await directory.ask("/search/company", nextToken=token)).json()
    assert other["error"] == "invalid_request"


@pytest.mark.parametrize("body", [{"query": "astronauts on the moon"}, {"currentRoleTitle": "Astronaut"}])
async def test_an_empty_set_of_results_costs_nothing(directory: Directory, body: dict[str, Any]) -> None:
    answer = (await directory.ask("/search/person", **body)).json()
    assert (answer["data"]["results"], answer["usage"]) == ([], {"creditsConsumed": 0, "usdCharged": 0.0})


async def test_companies_are_found_by_what_they_do(directory: Directory) -> None:
    body = (await directory.ask("/search/company", country="Germany", employeeCountMax=200)).json()
    (result,) = body["data"]["results"]
    assert (result["name"], result["industry"], result["employeeCount"]) == (
        "Kapok Software (invented)",
        "Software",
        120,
    )
    assert result["networkUrl"].startswith("https://network.example/company/")


async def test_a_profile_is_read_once_and_then_found_in_the_cache(directory: Directory) -> None:
    first = await directory.ask("/profile", networkProfileUrl=ADA)
    assert first.json()["usage"] == {"creditsConsumed": 2, "usdCharged": 0.04, "cached": False}
    assert first.json()["data"]["summary"] == "Invented by the simulator: this person does not exist."
    assert first.headers["x-people-cached"] == "false"
    again = await directory.ask("/profile", networkProfileUrl="HTTP://www.Network.Example/in/Ada-Adeyemi-0/?trk=1#top")
    assert again.json()["usage"] == {"creditsConsumed": 0, "usdCharged": 0.0, "cached": True}
    assert (again.json()["data"], again.headers["x-people-cached"]) == (first.json()["data"], "true")
    missing = (await directory.ask("/profile", networkProfileUrl="https://network.example/in/nobody")).json()
    assert (missing["data"], missing["status"], missing["usage"]["usdCharged"]) == (None, "not_found", 0.0)


async def test_an_email_is_looked_up_in_a_moment(directory: Directory) -> None:
    lookup = (await directory.ask("/profile/email", networkProfileUrl=ADA)).json()
    assert (lookup["status"], lookup["usage"], lookup["simulated"]) == ("pending", {"creditsConsumed": 3}, True)
    path = f"/email-lookup/{lookup['lookupId']}"
    pending = await directory.read(path)
    assert pending == {"status": "pending", "email": None, "credits_consumed": 3, "simulated": True}
    directory.clock.advance(3)
    await directory.run_jobs()
    result = await directory.read(path)
    assert (result["status"], result["email"]) == ("resolved", "ada-adeyemi-0@mail.example")
    assert result["credits_consumed"] == 4
    nobody = (await directory.ask("/profile/email", networkProfileUrl="https://network.example/in/nobody")).json()
    directory.clock.advance(3)
    await directory.run_jobs()
    assert (await directory.read(f"/email-lookup/{nobody['lookupId']}"))["status"] == "failed"


async def test_models_call_the_same_tools_by_the_names_of_document_4(directory: Directory) -> None:
    arguments = {"app_id": directory.app, "current_role_title": "Nurse", "page_size": 2}
    result = await call_tool(directory.baobab, "people_search_person", arguments)
    assert len(result["structuredContent"]["data"]["results"]) == 2
    assert result["structuredContent"]["simulated"] is True
    profile = await call_tool(
        directory.baobab, "people_profile", {"app_id": directory.app, "network_profile_url": ADA, "live_fetch": "force"}
    )
    assert profile["structuredContent"]["data"]["firstName"] == "Ada"


async def test_without_a_provider_and_with_the_simulator_off_everything_is_unavailable(tmp_path: Path) -> None:
    async with open_directory(tmp_path / "data", {"BAOBAB_SIMULATORS": "off"}) as own_directory:
        searches: list[tuple[str, str, dict[str, Any]]] = [
            ("/search/person", "people_search_person", {"query": "x"}),
            ("/search/company", "people_search_company", {"query": "x"}),
            ("/profile", "people_profile", {"networkProfileUrl": ADA}),
            ("/profile/email", "people_email_queue", {"networkProfileUrl": ADA}),
        ]
        for path, tool, body in searches:
            answer = await own_directory.ask(path, **body)
            assert (answer.status_code, answer.json()["error"]) == (503, "people_unavailable")
            assert "BAOBAB_PEOPLE_PRIMARY" in answer.json()["remediation"]
            result = await call_tool(own_directory.baobab, tool, {"app_id": own_directory.app, **body})
            assert read_refusal(result)["code"] == "people_unavailable"
