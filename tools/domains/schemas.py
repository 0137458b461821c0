"""The arguments and answers of custom domains."""

from datetime import datetime
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import Text, Uuid

Hostname = Annotated[
    str,
    Text(300, min_length=1),
    Field(description="The name, such as `www.example.com`; other alphabets are fine.", examples=["www.example.com"]),
]
Method = Literal["http", "txt"]
DomainId = Annotated[Uuid, Field(description="The custom domain's id.")]
Status = Literal["pending", "verifying", "active", "failed"]


class Domain(TypedDict):
    id: str
    hostname: Annotated[str, Field(description="In lower case; other alphabets as `xn--...`.")]
    status: Annotated[
        Status,
        Field(
            description="pending: no record is seen; verifying: some are, or not by all resolvers; active: the app is "
            "served at the name; failed: it is not looked for any more, until somebody has it checked."
        ),
    ]
    ssl_status: Annotated[
        Literal["pending", "active"],
        Field(description="active: a certificate may be issued, which happens at the first visit."),
    ]
    validation_method: Method
    url: str
    created_at: datetime
    checked_at: datetime | None
    verified_at: datetime | None
    next_check_at: Annotated[datetime | None, Field(description="Null: it is checked when somebody asks for it.")]


class CheckedDomain(Domain):
    verification_errors: Annotated[
        list[str], Field(description="What was wrong at the last check, and what to do: a sentence each.")
    ]


class DnsRecord(TypedDict):
    type: Literal["TXT", "CNAME"]
    name: str
    value: str


class NextAction(TypedDict):
    action: str
    description: str
    tool: NotRequired[str]


class Meta(TypedDict):
    next_actions: list[NextAction]


class AddedDomain(TypedDict):
    domain: Domain
    cname_target: Annotated[str, Field(description="The host name to which the custom domain leads.")]
    instructions: str
    verification_records: list[DnsRecord]
    ownership_verification: DnsRecord
    _meta: Meta


class DomainState(TypedDict):
    domain: CheckedDomain
    cname_target: str
    instructions: str
    verification_records: list[DnsRecord]
    _meta: Meta


class Domains(TypedDict):
    domains: list[CheckedDomain]
    cname_target: str
    limit: Annotated[int | None, Field(description="How many the plan allows for the app; null for any.")]


class RemovedDomain(TypedDict):
    deleted: bool
    id: str
    hostname: str
