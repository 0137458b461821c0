"""Exa: a provider that is searched by meaning, in words. It has no pages after the first, and no e-mail addresses."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.core.services import HttpClient
from baobab.tools.people.errors import ProviderFailed
from baobab.tools.people.providers.port import Action, Found, Search, describe_search
from baobab.tools.people.providers.wire import Wire, as_number, as_object, as_objects, as_text

ADDRESS = "https://api.exa.ai"
_GONE = frozenset({"CRAWL_NOT_FOUND", "SOURCE_NOT_AVAILABLE"})


class Exa:
    name = "exa"
    is_simulated = False
    actions: frozenset[Action] = frozenset({"search_person", "search_company", "profile"})

    def __init__(self, client: HttpClient, key: str, base_url: str = "") -> None:
        self._wire = Wire(client, base_url or ADDRESS, {"x-api-key": key})

    def count_most(self, search: Search) -> int:
        return search.page_size

    async def search_people(self, search: Search) -> Found:
        results = [
            {
                "networkProfileUrl": as_text(each.get("url")),
                "profile": _read_person(each),
                "lastUpdated": as_text(each.get("publishedDate")),
            }
            for each in await self._search("people", search)
        ]
        return Found(results, total=len(results), notes=self._notes(search))

    async def search_companies(self, search: Search) -> Found:
        results = [_read_company(each) for each in await self._search("company", search)]
        return Found(results, total=len(results), notes=self._notes(search))

    async def read_profile(self, url: str, *, fresh: bool) -> Any:
        body: dict[str, Any] = {"urls": [url], "text": {"maxCharacters": 5000}}
        if fresh:
            body["livecrawl"] = "always"
        answer = await self._wire.post("/contents", body)
        results = as_objects(answer.get("results"))
        if not results:
            tags = {as_text(as_object(each.get("error")).get("tag")) for each in as_objects(answer.get("statuses"))}
            if tags and not tags <= _GONE:
                raise ProviderFailed("The provider of people could not read the profile.")
            return None
        person = _read_person(results[0])
        identifier = url.rstrip("/").rpartition("/")[2]
        job = person["experiences"][0] if person["experiences"] else {}
        occupation = " at ".join(filter(None, (job.get("title"), job.get("company")))) or None
        return {
            "publicIdentifier": identifier,
            "occupation": occupation,
            "summary": as_text(results[0].get("text")),
            **person,
        }

    async def queue_email(self, url: str, callback_url: str) -> None:
        raise NotImplementedError

    async def _search(self, category: str, search: Search) -> list[dict[str, Any]]:
        words = describe_search(search, "people" if category == "people" else "companies")
        body = {"query": words, "category": category, "numResults": search.page_size}
        answer = await self._wire.post("/search", body)
        return [each for each in as_objects(answer.get("results")) if as_text(each.get("url"))]

    def _notes(self, search: Search) -> tuple[str, ...]:
        if search.query or not search.filters:
            return ()
        return ("This provider searches by meaning: the fields were put into words, and do not exclude anything.",)


def _read_properties(result: Mapping[str, Any], kind: str) -> dict[str, Any]:
    for entity in as_objects(result.get("entities")):
        if entity.get("type") == kind:
            return as_object(entity.get("properties"))
    return {}


def _read_person(result: Mapping[str, Any]) -> dict[str, Any]:
    properties = _read_properties(result, "person")
    title = as_text(result.get("title")) or ""
    name = as_text(properties.get("name")) or as_text(result.get("author")) or title.partition(" | ")[0] or None
    city, region, country = _split_place(as_text(properties.get("location")) or "")
    return {
        "fullName": name,
        "firstName": as_text(properties.get("firstName")),
        "lastName": as_text(properties.get("lastName")),
        "headline": title or None,
        "city": city,
        "state": region,
        "country": country,
        "experiences": [
            {
                "title": as_text(each.get("title")),
                "company": as_text(as_object(each.get("company")).get("name")),
                "location": as_text(each.get("location")),
                "startsAt": as_text(as_object(each.get("dates")).get("from")),
                "endsAt": as_text(as_object(each.get("dates")).get("to")),
            }
            for each in as_objects(properties.get("workHistory"))
        ],
        "education": [
            {
                "school": as_text(as_object(each.get("institution")).get("name")),
                "degree": as_text(each.get("degree")),
                "schoolUrl": None,
                "dates": _join_dates(as_object(each.get("dates"))),
            }
            for each in as_objects(properties.get("educationHistory"))
        ],
        "skills": [],
        "languages": [],
        "profilePicUrl": as_text(result.get("image")),
    }


def _read_company(result: Mapping[str, Any]) -> dict[str, Any]:
    properties = _read_properties(result, "company")
    return {
        "networkUrl": as_text(result.get("url")),
        "name": as_text(properties.get("name")) or as_text(result.get("title")),
        "industry": as_text(properties.get("industry")),
        "country": as_text(as_object(properties.get("headquarters")).get("country")),
        "employeeCount": as_number(as_object(properties.get("workforce")).get("total")),
    }


def _join_dates(dates: Mapping[str, Any]) -> str | None:
    return " - ".join(filter(None, (as_text(dates.get("from")), as_text(dates.get("to"))))) or None


def _split_place(place: str) -> tuple[str | None, str | None, str | None]:
    """Returns city, region and country of a place such as `Berlin, Germany`."""
    parts = [part.strip() for part in place.split(",") if part.strip()]
    match parts:
        case []:
            return None, None, None
        case [only]:
            return None, None, only
        case [city, country]:
            return city, None, country
        case [city, region, *_, country]:
            return city, region, country
    raise AssertionError("every list has been matched")
