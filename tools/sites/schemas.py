"""The arguments and answers of sites."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict

from baobab.tools.core import Text, Uuid

MOST_FILES_AT_ONCE, MOST_TEXT_BYTES = 200, 2**20
"""Of a site that is deployed in one call."""

Framework = Annotated[
    Literal["react-vite", "nextjs-static", "static", "other"],
    Field(description="What built the files. It changes nothing about how they are served."),
]
Status = Literal["WAITING", "UPLOADING", "BUILDING", "READY", "ERROR", "CANCELED"]
DeploymentId = Annotated[Uuid, Field(description="The deployment's id.")]
SiteTexts = Annotated[
    dict[Annotated[str, Text(400, min_length=1)], Annotated[str, Text(MOST_TEXT_BYTES)]],
    Field(
        min_length=1,
        max_length=MOST_FILES_AT_ONCE,
        description="The files: the text of each by its path, such as `index.html` and `assets/app.js`.",
        examples=[{"index.html": "<h1>Hello</h1>"}],
    ),
]
Bytes = Annotated[bytes, WithJsonSchema({"type": "string", "format": "binary"})]


class CreatedDeployment(TypedDict):
    id: str
    uploadUrl: Annotated[str, Field(description="Where to send the bytes of the zip, without a credential.")]
    expiresIn: Annotated[int, Field(description="Seconds for which the address is valid.")]
    maxSizeBytes: int


class StoredZip(TypedDict):
    id: str
    status: Status
    size_bytes: int


class DeploymentError(TypedDict):
    code: str
    message: str


class Deployment(TypedDict):
    id: str
    status: Annotated[
        Status,
        Field(
            description="WAITING for the zip; UPLOADING: it has arrived and can be started; BUILDING: it is unpacked; "
            "READY; ERROR; CANCELED."
        ),
    ]
    framework: str
    live: Annotated[bool, Field(description="Whether visitors see this deployment.")]
    url: Annotated[str, Field(description="The address of the site, which shows the live deployment.")]
    files_count: int
    size_bytes: Annotated[int, Field(description="Of its files, unpacked.")]
    warnings: Annotated[list[str], Field(description="What was left out, shadowed, not understood or removed.")]
    error: DeploymentError | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class Traffic(TypedDict):
    month: str
    sent_bytes: int
    requests: int
    limit_bytes: Annotated[int | None, Field(description="What the plan allows in a month; null for any.")]


class Deployments(TypedDict):
    deployments: list[Deployment]
    url: str
    kept: Annotated[int | None, Field(description="How many ready deployments the plan keeps; null for any.")]
    traffic: Traffic


class DeletedDeployment(TypedDict):
    id: str
    deleted: bool
    was_live: Annotated[bool, Field(description="Whether visitors saw it; the app then has no site.")]


class Preview(TypedDict):
    url: Annotated[str, Field(description="Opens the deployment in a browser. Whoever has the address can.")]
    expiresIn: int


class VariableKeys(TypedDict):
    keys: list[str]


class HeaderRule(TypedDict):
    pattern: str
    headers: list[tuple[str, str]]


class RedirectRule(TypedDict):
    pattern: str
    target: str
    status: int


_Header = Annotated[str, Text(8192), Field(default="")]


class Conditions(TypedDict, total=False):
    """What the headers of a request say, by argument."""

    range: Annotated[_Header, Field(description="One range of bytes, such as `bytes=0-1023`.")]
    accept: Annotated[_Header, Field(description="The media types that are wanted.")]
    accept_encoding: Annotated[_Header, Field(description="The compressions that are understood.")]
    if_none_match: Annotated[_Header, Field(description="The ETags of versions that the reader has.")]
    if_range: Annotated[_Header, Field(description="The ETag of the version of which a range is wanted.")]
