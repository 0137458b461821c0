"""The arguments and answers of people, with the names of document 2."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import NotSecret, Text
from baobab.tools.core.simulators import Simulated

Query = Annotated[str, Text(1000)]
Filter = Annotated[str, Text(300), Field(description="Only results that match these words.")]
PageSize = Annotated[int, Field(ge=1, le=100)]
NextToken = Annotated[str, Text(8000), NotSecret("it names a place in the results of this app alone")]
CallbackToken = Annotated[str, Text(100, min_length=1), NotSecret("it is good for one result, of one lookup")]
ProfileUrl = Annotated[str, Text(2000, min_length=1)]
LookupId = Annotated[str, Text(36, min_length=1)]
LiveFetch = Literal["", "force"]
Status = Literal["pending", "resolved", "failed", "expired"]


class Experience(TypedDict):
    title: str | None
    company: str | None
    location: str | None
    startsAt: str | None
    endsAt: str | None


class Education(TypedDict):
    school: str | None
    degree: str | None
    schoolUrl: str | None
    dates: str | None


class PersonProfile(TypedDict):
    """A person as searches show them. A provider does not know every field."""

    fullName: str | None
    firstName: str | None
    lastName: str | None
    headline: str | None
    city: str | None
    state: str | None
    country: str | None
    experiences: list[Experience]
    education: list[Education]
    skills: list[str]
    languages: list[str]
    profilePicUrl: str | None


class PersonResult(TypedDict):
    networkProfileUrl: str
    profile: PersonProfile | None
    lastUpdated: str | None


class CompanyResult(TypedDict):
    networkUrl: str
    name: str | None
    industry: str | None
    country: str | None
    employeeCount: int | None


class PersonPage(TypedDict):
    results: list[PersonResult]
    nextPage: Annotated[str | None, Field(description="An address with `next_token`, to send as nextToken.")]
    totalResultCount: int


class CompanyPage(TypedDict):
    results: list[CompanyResult]
    nextPage: Annotated[str | None, Field(description="An address with `next_token`, to send as nextToken.")]
    totalResultCount: int


class SearchUsage(TypedDict):
    creditsConsumed: int
    usdCharged: float


class PersonSearch(Simulated):
    data: PersonPage
    usage: SearchUsage


class CompanySearch(Simulated):
    data: CompanyPage
    usage: SearchUsage


class Profile(TypedDict):
    publicIdentifier: str | None
    firstName: str | None
    lastName: str | None
    fullName: str | None
    headline: str | None
    occupation: str | None
    summary: str | None
    city: str | None
    state: str | None
    country: str | None
    experiences: list[Experience]
    education: list[Education]
    skills: NotRequired[list[str]]
    languages: NotRequired[list[str]]
    profilePicUrl: NotRequired[str | None]
    raw: NotRequired[dict[str, Any]]


class ProfileUsage(SearchUsage):
    cached: bool


class ProfileResult(Simulated):
    data: Profile | None
    status: Literal["ok", "not_found"]
    usage: ProfileUsage


class QueueUsage(TypedDict):
    creditsConsumed: int


class QueuedLookup(Simulated):
    lookupId: str  # noqa: N815 - the name in document 2
    status: Status
    usage: QueueUsage


class EmailLookup(Simulated):
    status: Status
    email: str | None
    credits_consumed: Annotated[int, Field(description="Of the lookup in all: for the queue and the result.")]


class ListedLookup(TypedDict):
    lookupId: str
    networkProfileUrl: str | None
    status: Status
    email: str | None
    credits_consumed: int
    created_at: datetime
    ended_at: datetime | None
    simulated: bool


class Receipt(TypedDict):
    received: bool


class Lookups(TypedDict):
    lookups: list[ListedLookup]


class UsageRow(TypedDict):
    id: str
    action: str
    credits_consumed: int
    usd_cost: Annotated[str, Field(description="What the provider gets, in dollars.")]
    usd_charged: Annotated[str, Field(description="What was charged, in dollars; less if the balance ran out.")]
    response_status: int
    network_url: str | None
    created_at: datetime
    simulated: bool


class UsageRows(TypedDict):
    rows: list[UsageRow]


class Erasure(TypedDict):
    networkProfileUrl: str
    profiles_deleted: int
    lookups_deleted: int
    usage_rows_cleared: int
