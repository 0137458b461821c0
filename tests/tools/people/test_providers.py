"""The wires of Enrich Layer and Exa: what each is asked, and how its answers are read (fakes.py plays both)."""

import asyncio
import json
from typing import Any

import pytest
from exa_py import Exa

from tests.tools.people.conftest import Directory
from tests.tools.people.fakes import EXA_KEY, NETWORK, Fake

PERSON = f"{NETWORK}/in/person-1"
SECONDARY = {"BAOBAB_PEOPLE_ROUTES": "search_person=secondary,search_company=secondary,profile=secondary"}


async def test_enrich_layer_is_searched_by_its_fields_with_booleans_and_pages(live: Directory, fake: Fake) -> None:
    filters: dict[str, Any] = {
        "currentRoleTitle": "CTO || Founder",
        "country": "DE",
        "educationSchoolName": "TU Berlin",
    }
    answer = await live.ask("/search/person", **filters, pageSize=10)
    body = answer.json()
    assert fake.requests[0]["path"] == "/api/v2/search/person"
    assert fake.requests[0]["query"] == {
        "current_role_title": "CTO || Founder",
        "country": "DE",
        "education_school_name": "TU Berlin",
        "page_size": "10",
        "enrich_profiles": "enrich",
    }
    assert body["data"]["totalResultCount"] == 25
    assert body["data"]["results"][0] == {
        "networkProfileUrl": f"{NETWORK}/in/person-0",
        "profile": {
            "fullName": "Person 0",
            "firstName": "Person",
            "lastName": "0",
            "headline": "Engineer at Acme",
            "city": "Berlin",
            "state": "Berlin",
            "country": "Germany",
            "experiences": [
                {"title": "Engineer", "company": "Acme", "location": "Berlin", "startsAt": "2022-03-01", "endsAt": None}
            ],
            "education": [
                {
                    "school": "TU Berlin",
                    "degree": "MSc, Physics",
                    "schoolUrl": f"{NETWORK}/school/tu-berlin",
                    "dates": "2014 - 2018",
                }
            ],
            "skills": ["Physics"],
            "languages": ["German"],
            "profilePicUrl": "https://media.example/1.jpg",
        },
        "lastUpdated": "2026-05-01T00:00:00Z",
    }
    page = body["data"]["nextPage"]
    assert fake.url not in page
    assert "simulated" not in body
    following = (await live.ask("/search/person", nextToken=page.partition("next_token=")[2])).json()
    assert fake.requests[1]["query"] == fake.requests[0]["query"] | {"next_token": "10"}
    assert following["data"]["results"][0]["networkProfileUrl"].endswith("/in/person-10")
    last = following["data"]["nextPage"].partition("next_token=")[2]
    ending = (await live.ask("/search/person", nextToken=last)).json()
    assert (len(ending["data"]["results"]), ending["data"]["nextPage"]) == (5, None)


async def test_what_enrich_layer_cannot_do_is_said(live: Directory, fake: Fake) -> None:
    answer = await live.ask("/search/person", query="founders in Berlin", city="Berlin", pageSize=50)
    warnings = json.loads(answer.headers["x-baobab-warnings"])
    assert any("`query` takes priority: city" in each for each in warnings)
    assert any("headlines" in each for each in warnings)
    assert any("at most 10 results" in each for each in warnings)
    assert fake.requests[0]["query"]["headline"] == "founders in Berlin"
    bare = (await live.ask("/search/person", country="DE", pageSize=20, enrichProfiles=False)).json()
    assert bare["data"]["results"][0]["profile"] is None
    assert bare["usage"] == {"creditsConsumed": 17, "usdCharged": 0.0204}


async def test_companies_and_profiles_of_enrich_layer(live: Directory, fake: Fake) -> None:
    company = (await live.ask("/search/company", industry="Software", employeeCountMax=500)).json()
    assert fake.requests[0]["query"]["employee_count_max"] == "500"
    assert company["data"]["results"] == [
        {
            "networkUrl": f"{NETWORK}/company/acme",
            "name": "Acme",
            "industry": "Software",
            "country": "DE",
            "employeeCount": 120,
        }
    ]
    profile = (await live.ask("/profile", networkProfileUrl="https://de.linkedin.com/in/Person-1/?trk=x")).json()
    assert fake.requests[1]["query"]["profile_url"] == "https://linkedin.com/in/person-1"
    assert profile["data"]["publicIdentifier"] == "person-1"
    assert profile["data"]["occupation"] == "Engineer at Acme"


@pytest.mark.parametrize("variables", [SECONDARY])
async def test_exa_is_asked_in_words_and_has_one_page(live: Directory, fake: Fake) -> None:
    filters: dict[str, Any] = {
        "currentRoleTitle": "CTO",
        "currentCompanyIndustry": "software",
        "city": "Berlin",
        "country": "Germany",
    }
    answer = await live.ask("/search/person", **filters, pageSize=12)
    assert answer.headers["x-people-provider"] == "secondary"
    assert fake.requests[0]["body"] == {
        "query": "CTO in the software industry in Berlin, Germany",
        "category": "people",
        "numResults": 12,
    }
    body = answer.json()
    assert (body["data"]["nextPage"], body["data"]["totalResultCount"]) == (None, 12)
    assert body["usage"] == {"creditsConsumed": 9, "usdCharged": 0.0108}
    profile = body["data"]["results"][1]["profile"]
    assert (profile["fullName"], profile["city"], profile["country"]) == ("Person 1", "Berlin", "Germany")
    assert profile["experiences"][0]["company"] == "Acme"
    assert profile["education"][0]["dates"] == "2014 - 2018"
    assert "put into words" in answer.headers["x-baobab-warnings"]
    company = (await live.ask("/search/company", query="toy makers")).json()
    assert company["data"]["results"][0]["employeeCount"] == 120
    read = (await live.ask("/profile", networkProfileUrl=PERSON)).json()
    assert (read["data"]["fullName"], read["data"]["occupation"]) == ("Person 1", "Engineer at Acme")
    nobody = (await live.ask("/profile", networkProfileUrl=f"{NETWORK}/in/nobody")).json()
    assert (nobody["status"], nobody["usage"]["usdCharged"]) == ("not_found", 0.0)


@pytest.mark.parametrize("variables", [{"BAOBAB_PEOPLE_ROUTES": "profile_email=secondary"}])
async def test_exa_has_no_email_addresses(live: Directory, fake: Fake) -> None:
    answer = await live.ask("/profile/email", networkProfileUrl=PERSON)
    body = answer.json()
    assert (answer.status_code, body["error"], body["slot"]) == (503, "provider_action_unsupported", "secondary")
    assert answer.headers["x-people-provider"] == "secondary"
    assert fake.requests == []


THIRD = {"BAOBAB_PEOPLE_TERTIARY": "exa", "BAOBAB_PEOPLE_TERTIARY_KEY": EXA_KEY}


@pytest.mark.parametrize("variables", [THIRD | {"BAOBAB_PEOPLE_ROUTES": "search_person=tertiary"}])
async def test_a_third_slot_answers_the_actions_that_are_routed_to_it(live: Directory, fake: Fake) -> None:
    answer = await live.ask("/search/person", query="nurses")
    assert (answer.status_code, answer.headers["x-people-provider"]) == (200, "tertiary")
    assert (await live.ask("/search/company", query="x")).headers["x-people-provider"] == "primary"


@pytest.mark.parametrize("variables", [{"BAOBAB_PEOPLE_ROUTES": "search_person=secondary"}])
async def test_a_client_of_the_provider_reads_the_same_from_the_stand_in(live: Directory, fake: Fake) -> None:
    client = Exa(EXA_KEY, base_url=fake.url)
    results = (
        await asyncio.to_thread(client.search, "nurses", category="people", num_results=2, contents=False)
    ).results
    assert [result.url for result in results] == [f"{NETWORK}/in/person-0", f"{NETWORK}/in/person-1"]
    assert fake.requests[-1]["body"] == {"query": "nurses", "category": "people", "numResults": 2}
    own = (await live.ask("/search/person", query="nurses", pageSize=2)).json()
    assert fake.requests[-1]["body"] == fake.requests[-2]["body"]
    assert [result["networkProfileUrl"] for result in own["data"]["results"]] == [each.url for each in results]
    (person,) = (await asyncio.to_thread(client.get_contents, [PERSON], text=True)).results
    assert (person.url, person.text) == (PERSON, "Builds things.")
    stranger = Exa("another-key", base_url=fake.url)
    with pytest.raises(ValueError, match="401"):
        await asyncio.to_thread(stranger.search, "nurses", contents=False)


@pytest.mark.parametrize("second", ["answer", "failure"])
async def test_a_read_that_fails_is_tried_once_more(live: Directory, fake: Fake, second: str) -> None:
    fake.refusals = [(500, {"code": 500}, {})] * (1 if second == "answer" else 2)
    answer = await live.ask("/profile", networkProfileUrl=PERSON)
    assert answer.status_code == (200 if second == "answer" else 502)
    assert len(fake.requests) == 2


async def test_an_answer_that_comes_after_its_client_has_gone_is_charged(live: Directory, fake: Fake) -> None:
    fake.slow.clear()
    before = await live.read_balance()
    request = asyncio.create_task(live.ask("/profile", networkProfileUrl=PERSON))
    await fake.arrival.wait()
    request.cancel()
    fake.slow.set()
    await asyncio.gather(request, return_exceptions=True)
    async with asyncio.timeout(180):
        while not await live.read_usage():
            await asyncio.sleep(0.01)
    assert await live.read_usage() == [("profile", 2, "0.04")]
    assert before - await live.read_balance() == 40_000_000
