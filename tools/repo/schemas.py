"""The arguments and answers of repositories."""

from datetime import datetime
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, WithJsonSchema
from typing_extensions import TypedDict

from baobab.tools.core import Text

MOST_FILES = 10_000
MOST_FILE_BYTES, MOST_SNAPSHOT_BYTES = 10 * 2**20, 100 * 2**20


def _check_path(path: str) -> str:
    if any(segment in ("", ".", "..") for segment in path.split("/")):
        raise ValueError("must be relative, without empty segments, `.` and `..`")
    return path


RepoPath = Annotated[
    str,
    Text(4096, min_length=1, pattern=r"^[ -\[\]-~]+$"),
    AfterValidator(_check_path),
    Field(description="A relative path of ASCII characters, with slashes.", examples=["src/app.ts"]),
]
Sha256 = Annotated[
    str,
    Text(64, pattern="^[0-9a-f]{64}$"),
    Field(
        description="The SHA-256 of the file's bytes, in hexadecimal.",
        examples=["2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"],
    ),
]
SnapshotId = Annotated[
    str, Text(64, pattern="^[0-9a-f]{64}$"), Field(description="The snapshot's id, which its commit returned.")
]


class RepoFile(TypedDict):
    path: RepoPath
    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=2**40, description="The length of the file in bytes.")]


Message = Annotated[str, Text(2000), Field(description="What has changed, in words.")]
RepoFiles = Annotated[list[RepoFile], Field(max_length=MOST_FILES, description="The files of the snapshot.")]


class Manifest(TypedDict):
    files: RepoFiles
    message: NotRequired[Message]


class MissingBlob(TypedDict):
    sha256: str
    uploadUrl: Annotated[str, Field(description="Where to send the bytes, within ten minutes.")]


class Prepared(TypedDict):
    snapshot_id: str
    total_bytes: int
    file_count: int
    missing_blobs: list[MissingBlob]


class Committed(TypedDict):
    snapshot_id: str
    total_bytes: int
    file_count: int
    created_at: datetime


class ListedSnapshot(TypedDict):
    snapshot_id: str
    created_at: datetime


class Snapshots(TypedDict):
    snapshots: list[ListedSnapshot]


class Snapshot(TypedDict):
    snapshot_id: str
    manifest: Manifest


class Blob(TypedDict):
    sha256: str
    size: int
    downloadUrl: Annotated[str, Field(description="Whoever has it may read the blob there until it expires.")]
    expiresIn: Annotated[int, Field(description="Seconds until the address expires.")]


class Blobs(TypedDict):
    blobs: list[Blob]


class StoredBlob(TypedDict):
    sha256: str
    size: int


class PushedFunction(TypedDict):
    name: str
    version: Annotated[int | None, Field(description="The new version; null if there is none.")]
    error: Annotated[str | None, Field(description="Why it was not deployed; null if it was, or has not changed.")]


class PushDeployment(TypedDict):
    snapshot_id: str
    at: datetime
    functions: list[PushedFunction]
    error: Annotated[str | None, Field(description="Why nothing was deployed at all.")]


class RepoSettings(TypedDict):
    deploys_functions: Annotated[bool, Field(description="Whether a push deploys the files in `functions/`.")]
    deploying: Annotated[str | None, Field(description="The snapshot that is being deployed; null if none is.")]
    last_deployment: PushDeployment | None


class Removed(TypedDict):
    message: str
    app_id: str


Bytes = Annotated[Any, WithJsonSchema({"type": "string", "format": "binary"})]
"""A stream."""
