"""The simulator: invented persons and companies, labelled as such, that are the same on every server."""

import re
from dataclasses import dataclass
from typing import Any

from baobab.tools.people.errors import TokenInvalid
from baobab.tools.people.providers.port import ACTIONS, Action, Found, Search

HOST = "network.example"
NOTE = "Invented by the simulator: this person does not exist."
_FIRST = ("Ada", "Ben", "Chidi", "Dana", "Elif", "Farid", "Greta", "Hana", "Ivo", "Jun", "Kemi", "Lars")
_LAST = ("Adeyemi", "Berg", "Castillo", "Duarte", "Eriksen", "Fontaine", "Greene", "Haddad", "Ito", "Jansen")
_ROLES = (
    ("Software Engineer", "Support Engineer", "Computer Science"),
    ("Head of Sales", "Account Executive", "Business"),
    ("Data Scientist", "Analyst", "Statistics"),
    ("Product Manager", "Consultant", "Economics"),
    ("Nurse", "Care Assistant", "Nursing"),
    ("Chief Executive Officer", "Founder", "Law"),
    ("Designer", "Illustrator", "Fine Arts"),
)
_COMPANIES = (
    ("Kapok Software", "Software", "Germany", 120),
    ("Marula Foods", "Food", "South Africa", 800),
    ("Moringa Health", "Healthcare", "Kenya", 45),
    ("Tamarind Bank", "Banking", "India", 5200),
    ("Sycamore Rail", "Transport", "United Kingdom", 15000),
    ("Acacia Energy", "Energy", "France", 310),
    ("Juniper Toys", "Toys", "Denmark", 12),
    ("Cedar Textiles", "Textiles", "Brazil", 2300),
)
_PLACES = (
    ("Berlin", "Berlin", "Germany"),
    ("Cape Town", "Western Cape", "South Africa"),
    ("Nairobi", "Nairobi", "Kenya"),
    ("Mumbai", "Maharashtra", "India"),
    ("London", "England", "United Kingdom"),
    ("Lyon", "Rhone", "France"),
    ("Aarhus", "Jutland", "Denmark"),
    ("Recife", "Pernambuco", "Brazil"),
)
_SCHOOLS = ("Baobab University", "Savanna Institute of Technology", "Riverside College")
_WORD = re.compile(r"\w+")
_IDLE = frozenset(
    {"a", "all", "an", "and", "any", "at", "by", "for", "from", "in", "is", "of", "or", "the", "to", "who"}
)
_KINDS = frozenset({"companies", "company", "people", "person", "with"})
"""Words of a query that say nothing about whom it wants."""
_MATCHED_BY = {
    "currentRoleTitle": "role",
    "pastRoleTitle": "past",
    "currentCompanyName": "company",
    "currentCompanyIndustry": "industry",
    "industry": "industry",
    "country": "country",
    "region": "region",
    "city": "city",
    "educationSchoolName": "school",
    "educationDegreeName": "degree",
    "educationFieldOfStudy": "field",
}


@dataclass(frozen=True, slots=True)
class _Entry:
    """Something invented: the texts by which it is found, and how it is answered."""

    texts: dict[str, str]
    answer: Any
    employees: int = 0


class Simulator:
    name = "simulator"
    is_simulated = True
    actions: frozenset[Action] = frozenset(ACTIONS)

    def count_most(self, search: Search) -> int:
        return search.page_size

    async def search_people(self, search: Search) -> Found:
        return _find(_PEOPLE, search)

    async def search_companies(self, search: Search) -> Found:
        return _find(_COMPANY_ENTRIES, search)

    async def read_profile(self, url: str, *, fresh: bool) -> Any:
        return _PROFILES.get(url)

    async def queue_email(self, url: str, callback_url: str) -> None:
        """Does nothing: a job answers the lookup in a moment (jobs.py)."""


def find_email(url: str) -> str:
    """Returns the address of an invented person; the empty string for anybody else, of whom none is found."""
    profile = _PROFILES.get(url)
    return "" if profile is None else f"{profile['publicIdentifier']}@mail.example"


def _find(entries: list[_Entry], search: Search) -> Found:
    try:
        begin = int(search.cursor or 0)
    except ValueError as exc:
        raise TokenInvalid from exc
    matches = [entry.answer for entry in entries if _matches(entry, search)]
    end = begin + search.page_size
    return Found(matches[begin:end], str(end) if end < len(matches) else None, len(matches))


def _matches(entry: _Entry, search: Search) -> bool:
    if search.query:
        words = [word for word in _WORD.findall(search.query.lower()) if word not in _IDLE | _KINDS]
        text = " ".join(entry.texts.values()).lower()
        return all(word in text or word.rstrip("s") in text for word in words)
    most = search.filters.get("employeeCountMax")
    if most is not None and entry.employees > int(most):
        return False
    return all(
        _admits(str(value), entry.texts.get(_MATCHED_BY[name], ""))
        for name, value in search.filters.items()
        if name in _MATCHED_BY
    )


def _admits(wanted: str, text: str) -> bool:
    """Returns whether a text has what a filter wants, which may be alternatives: `Engineer OR Designer`, `a || b`."""
    alternatives = re.split(r"\s*(?:\|\||\bOR\b)\s*", wanted)
    return any(
        all(part.strip("\" '").lower() in text.lower() for part in re.split(r"\s*(?:&&|\bAND\b)\s*", alternative))
        for alternative in alternatives
    )


def _invent_person(number: int) -> tuple[str, dict[str, Any], _Entry]:
    first, last = _FIRST[number % len(_FIRST)], _LAST[number * 7 % len(_LAST)]
    role, past, field = _ROLES[number % len(_ROLES)]
    company, industry, _, _ = _COMPANIES[number % len(_COMPANIES)]
    former = _COMPANIES[(number + 3) % len(_COMPANIES)][0]
    city, region, country = _PLACES[number % len(_PLACES)]
    school, degree = _SCHOOLS[number % len(_SCHOOLS)], ("Bachelor", "Master", "Doctor")[number // 3 % 3]
    identifier = f"{first}-{last}-{number}".lower()
    url = f"https://{HOST}/in/{identifier}"
    names = {"fullName": f"{first} {last}", "firstName": first, "lastName": last}
    common = {
        **names,
        "headline": f"{role} at {company} (invented)",
        "city": city,
        "state": region,
        "country": country,
        "experiences": [
            {"title": role, "company": company, "location": city, "startsAt": "2022-03", "endsAt": None},
            {"title": past, "company": former, "location": city, "startsAt": "2018-01", "endsAt": "2022-02"},
        ],
        "education": [
            {"school": school, "degree": f"{degree}, {field}", "schoolUrl": None, "dates": "2014 - 2018"},
        ],
    }
    further = {"skills": [field, role], "languages": ["English"], "profilePicUrl": None}
    about = {"publicIdentifier": identifier, "occupation": f"{role} at {company}", "summary": NOTE}
    texts = {
        "name": names["fullName"],
        "role": role,
        "past": past,
        "company": company,
        "industry": industry,
        "city": city,
        "region": region,
        "country": country,
        "school": school,
        "degree": degree,
        "field": field,
    }
    result = {"networkProfileUrl": url, "profile": {**common, **further}, "lastUpdated": "2026-01-01"}
    return url, {**about, **common, **further}, _Entry(texts, result)


def _invent_company(name: str, industry: str, country: str, employees: int) -> _Entry:
    url = f"https://{HOST}/company/{name.lower().replace(' ', '-')}"
    result = {
        "networkUrl": url,
        "name": f"{name} (invented)",
        "industry": industry,
        "country": country,
        "employeeCount": employees,
    }
    return _Entry({"name": name, "industry": industry, "country": country}, result, employees)


_INVENTED = [_invent_person(number) for number in range(84)]
_PEOPLE = [entry for _, _, entry in _INVENTED]
_PROFILES = {url: profile for url, profile, _ in _INVENTED}
_COMPANY_ENTRIES = [_invent_company(*each) for each in _COMPANIES]
