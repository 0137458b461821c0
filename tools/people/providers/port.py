"""The port to a provider of people, and what goes through it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Action = Literal["search_person", "search_company", "profile", "profile_email"]
ACTIONS: tuple[Action, ...] = ("search_person", "search_company", "profile", "profile_email")


@dataclass(frozen=True, slots=True)
class Search:
    """A search for people or companies.

    query: free text; empty where only `filters` say what is wanted. filters: by the names of document 2.
    cursor: the provider's own place in the results; None for their beginning.
    """

    query: str
    filters: Mapping[str, str | int]
    page_size: int
    enrich: bool = True
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A page of results, in the form that is answered.

    cursor: where the next page begins; None where there is none. total: None if the provider does not count.
    notes: what the caller should know, such as a part of the search that the provider cannot do.
    """

    results: Sequence[Any]
    cursor: str | None = None
    total: int | None = None
    notes: tuple[str, ...] = ()


class PeopleProvider(Protocol):
    """A provider. Every method may raise a ProviderError; `actions` says which ones it has."""

    name: str
    actions: frozenset[Action]
    is_simulated: bool

    def count_most(self, search: Search) -> int:
        """Returns how many results a page of a search has at most."""
        ...

    async def search_people(self, search: Search) -> Found: ...

    async def search_companies(self, search: Search) -> Found: ...

    async def read_profile(self, url: str, *, fresh: bool) -> Any:
        """Returns a profile in the form that is answered; None if there is no such person."""
        ...

    async def queue_email(self, url: str, callback_url: str) -> None:
        """Asks for a person's work e-mail address, which the provider later sends to the callback."""
        ...


_PERSON_WORDS = (
    ("currentRoleTitle", "{}"),
    ("currentCompanyName", "working at {}"),
    ("currentCompanyIndustry", "in the {} industry"),
    ("pastRoleTitle", "formerly {}"),
    ("educationDegreeName", "with the degree {}"),
    ("educationFieldOfStudy", "who studied {}"),
    ("educationSchoolName", "educated at {}"),
)
_COMPANY_WORDS = (("industry", "{} companies"), ("employeeCountMax", "with at most {} employees"))
_PLACES = ("city", "region", "country")


def describe_search(search: Search, kind: Literal["people", "companies"]) -> str:
    """Returns a search as words, for providers that search by meaning: the query, else the filters in a sentence."""
    if search.query:
        return search.query
    patterns = _PERSON_WORDS if kind == "people" else _COMPANY_WORDS
    words = [pattern.format(search.filters[name]) for name, pattern in patterns if name in search.filters]
    if patterns[0][0] not in search.filters:
        words.insert(0, kind)
    places = [str(search.filters[name]) for name in _PLACES if name in search.filters]
    return " ".join([*words, *(["in " + ", ".join(places)] if places else [])])
