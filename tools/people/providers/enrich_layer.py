"""Enrich Layer: a provider that is searched by fields, with booleans in them, and finds e-mail addresses."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from baobab.tools.core.services import HttpClient
from baobab.tools.people.errors import ProviderNotFound
from baobab.tools.people.providers.port import ACTIONS, Action, Found, Search
from baobab.tools.people.providers.wire import Wire, as_number, as_object, as_objects, as_text

ADDRESS = "https://enrichlayer.com/api/v2"
_PERSON_FIELDS = {
    "currentRoleTitle": "current_role_title",
    "pastRoleTitle": "past_role_title",
    "currentCompanyName": "current_company_name",
    "currentCompanyIndustry": "current_company_industry",
    "country": "country",
    "region": "region",
    "city": "city",
    "educationSchoolName": "education_school_name",
    "educationDegreeName": "education_degree_name",
    "educationFieldOfStudy": "education_field_of_study",
}
_COMPANY_FIELDS = {"industry": "industry", "country": "country", "employeeCountMax": "employee_count_max"}
_MOST_ENRICHED = 10
_WORDS = {"headline": "headlines", "description": "descriptions"}


class EnrichLayer:
    name = "enrich_layer"
    is_simulated = False
    actions: frozenset[Action] = frozenset(ACTIONS)

    def __init__(self, client: HttpClient, key: str, base_url: str = "") -> None:
        self._wire = Wire(client, base_url or ADDRESS, {"authorization": f"Bearer {key}"})

    def count_most(self, search: Search) -> int:
        return min(search.page_size, _MOST_ENRICHED) if search.enrich else search.page_size

    async def search_people(self, search: Search) -> Found:
        answer, notes = await self._search("/search/person", search, _PERSON_FIELDS, "headline")
        results = [
            {
                "networkProfileUrl": _read_url(each),
                "profile": read_person(as_object(each.get("profile"))) if each.get("profile") else None,
                "lastUpdated": as_text(each.get("last_updated")),
            }
            for each in as_objects(answer.get("results"))
            if _read_url(each)
        ]
        return Found(results, _read_cursor(answer), as_number(answer.get("total_result_count")), notes)

    async def search_companies(self, search: Search) -> Found:
        answer, notes = await self._search("/search/company", search, _COMPANY_FIELDS, "description")
        results = [_read_company(each) for each in as_objects(answer.get("results")) if _read_url(each)]
        return Found(results, _read_cursor(answer), as_number(answer.get("total_result_count")), notes)

    async def read_profile(self, url: str, *, fresh: bool) -> Any:
        parameters = {"profile_url": url, "use_cache": "if-recent" if fresh else "if-present", "skills": "include"}
        try:
            answer = await self._wire.get("/profile", parameters)
        except ProviderNotFound:
            return None
        return {
            "publicIdentifier": as_text(answer.get("public_identifier")),
            "occupation": as_text(answer.get("occupation")),
            "summary": as_text(answer.get("summary")),
            **read_person(answer),
        }

    async def queue_email(self, url: str, callback_url: str) -> None:
        # Once: each request costs credits.
        parameters = {"profile_url": url, "callback_url": callback_url}
        await self._wire.send("GET", f"/profile/email?{urlencode(parameters)}")

    async def _search(
        self, path: str, search: Search, fields: Mapping[str, str], text_field: str
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        notes: list[str] = []
        if search.query:
            notes.append(
                f"This provider has no free search: `query` was looked for in {_WORDS[text_field]}. "
                "The other fields find more."
            )
            parameters: dict[str, Any] = {text_field: search.query}
        else:
            parameters = {fields[name]: value for name, value in search.filters.items() if name in fields}
        page_size = self.count_most(search)
        if page_size < search.page_size:
            notes.append(
                f"The provider answers at most {_MOST_ENRICHED} results with profiles at once: take the others by "
                "nextPage, or set enrichProfiles to false."
            )
        parameters |= {"page_size": page_size, "enrich_profiles": "enrich" if search.enrich else "skip"}
        if search.cursor is not None:
            parameters["next_token"] = search.cursor
        return await self._wire.get(path, parameters), tuple(notes)


def read_person(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that profiles and the results of searches share."""
    return {
        "fullName": as_text(profile.get("full_name")),
        "firstName": as_text(profile.get("first_name")),
        "lastName": as_text(profile.get("last_name")),
        "headline": as_text(profile.get("headline")),
        "city": as_text(profile.get("city")),
        "state": as_text(profile.get("state")),
        "country": as_text(profile.get("country_full_name")) or as_text(profile.get("country")),
        "experiences": [
            {
                "title": as_text(each.get("title")),
                "company": as_text(each.get("company")),
                "location": as_text(each.get("location")),
                "startsAt": _read_date(each.get("starts_at")),
                "endsAt": _read_date(each.get("ends_at")),
            }
            for each in as_objects(profile.get("experiences"))
        ],
        "education": [
            {
                "school": as_text(each.get("school")),
                "degree": ", ".join(
                    filter(None, (as_text(each.get("degree_name")), as_text(each.get("field_of_study"))))
                )
                or None,
                "schoolUrl": as_text(each.get("school_linkedin_profile_url")),
                "dates": " - ".join(filter(None, (_read_date(each.get("starts_at")), _read_date(each.get("ends_at")))))
                or None,
            }
            for each in as_objects(profile.get("education"))
        ],
        "skills": [each for each in profile.get("skills") or () if isinstance(each, str)],
        "languages": [each for each in profile.get("languages") or () if isinstance(each, str)],
        "profilePicUrl": as_text(profile.get("profile_pic_url")),
    }


def _read_company(result: Mapping[str, Any]) -> dict[str, Any]:
    profile = as_object(result.get("profile"))
    size = profile.get("company_size")
    range_end = next((each for each in reversed(size) if each), None) if isinstance(size, list) else None
    return {
        "networkUrl": _read_url(result),
        "name": as_text(profile.get("name")),
        "industry": as_text(profile.get("industry")),
        "country": as_text(as_object(profile.get("hq")).get("country")),
        "employeeCount": as_number(profile.get("company_size_on_linkedin")) or as_number(range_end),
    }


def _read_url(result: Mapping[str, Any]) -> str:
    return as_text(result.get("linkedin_profile_url")) or as_text(result.get("profile_url")) or ""


def _read_cursor(answer: Mapping[str, Any]) -> str | None:
    """Returns the token in the address of the next page."""
    page = as_text(answer.get("next_page"))
    return None if page is None else next(iter(parse_qs(urlsplit(page).query).get("next_token", [])), None)


def _read_date(value: Any) -> str | None:
    """Returns a date such as `2022-03` or `2022-03-01`, as far as it is known."""
    if isinstance(value, str):
        return value
    date = as_object(value)
    year, month, day = (as_number(date.get(name)) for name in ("year", "month", "day"))
    if year is None:
        return None
    return "-".join([f"{year:04d}", *([f"{month:02d}"] if month else []), *([f"{day:02d}"] if month and day else [])])
