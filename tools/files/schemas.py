"""The arguments and answers of files."""

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Field, WithJsonSchema
from typing_extensions import TypedDict

from baobab.tools.core import NameText, NotSecret, Text, Uuid
from baobab.tools.files.errors import ContentInvalid, FileTooLarge

MOST_INLINE = 2**20
"""The most bytes of a file that is sent within a call."""
LONGEST_INLINE = 4 * (MOST_INLINE // 3 + 1)
"""The same in characters, because base64 needs four for three bytes."""
MOST_NAMED = 256 * 1024
"""The most bytes of a file that is answered by its name."""
MOST_READ = 64 * 1024
"""The most bytes of a file that is answered within a call."""


def _check_segments(filename: str) -> str:
    if "\\" in filename or any(segment.strip() in ("", ".", "..") for segment in filename.split("/")):
        raise ValueError("must be a name, or names with single slashes between them, without backslashes, `.` and `..`")
    return filename


def normalise_type(content_type: str) -> str:
    """Writes the type in lower case, and its parameters without spaces around them."""
    kind, *parameters = (part.strip() for part in content_type.split(";"))
    return ";".join((kind.lower(), *parameters))


_WORD = r"[A-Za-z0-9!#$&^_.+-]{1,100}"
Filename = Annotated[
    str,
    NameText(255, min_length=1),
    AfterValidator(_check_segments),
    Field(description="The file's name; slashes may divide it.", examples=["photos/baobab.png"]),
]
ContentType = Annotated[
    str,
    Text(200, pattern=rf'^{_WORD}/{_WORD}(; ?{_WORD}=("[ -!#-\[\]-~]*"|{_WORD}))*$'),
    AfterValidator(normalise_type),
    Field(description="The MIME type.", examples=["image/png"]),
]
SizeBytes = Annotated[int, Field(ge=0, le=2**40, description="The exact length of the file in bytes.")]
FileId = Annotated[Uuid, Field(description="The file's id: `objectId` of its upload.")]


MetadataName = Annotated[
    str,
    Text(64, min_length=1, pattern=r"^[A-Za-z0-9_.-]+$"),
    NotSecret("a name that the caller gave some text"),
    Field(description="A name in the metadata of files."),
]
Metadata = Annotated[
    dict[MetadataName, Annotated[str, Text(500)]],
    Field(
        max_length=20,
        description="Texts of your own by name, up to 20 of up to 500 characters each.",
        examples=[{"album": "summer"}],
    ),
]
FilenamePrefix = Annotated[
    str,
    Text(255, min_length=1),
    Field(description="How the names begin, such as `photos/`.", examples=["photos/"]),
]
IdempotencyKey = Annotated[
    str,
    Text(128, min_length=1),
    NotSecret("a name of the caller's own"),
    Field(description="A text of your own. A second call with it answers the file of the first one."),
]
KEY_HEADER = {"idempotency_key": "idempotency-key"}
PictureSize = Literal[160, 320, 640, 1280, 1920]
PictureShape = Literal["whole", "square"]
FileOrder = Literal["created", "name", "size"]


class ResourceInfo(TypedDict):
    storage_used_bytes: int
    storage_reserved_bytes: Annotated[int, Field(description="What started uploads reserve; not in `used`.")]
    storage_limit_bytes: int
    storage_used_percent: float
    files_count: int
    user_used_bytes: NotRequired[
        Annotated[int, Field(description="For a user: what their files and started uploads take.")]
    ]
    user_limit_bytes: NotRequired[int]


class UploadMeta(TypedDict):
    resource_info: ResourceInfo


class Upload(TypedDict):
    uploadUrl: Annotated[str, Field(description="Where to send the bytes, with the announced type.")]
    objectKey: str
    objectId: str
    expiresIn: Annotated[int, Field(description="Seconds within which the upload must begin.")]
    _meta: UploadMeta


class Download(TypedDict):
    downloadUrl: Annotated[str, Field(description="Whoever has it may read the file there until it expires.")]
    filename: str
    expiresIn: Annotated[int, Field(description="Seconds until the addresses expire.")]
    thumbnailUrl: Annotated[
        str | None, Field(description="A small copy of a picture, or of a PDF's first page; null for other files.")
    ]
    pictureUrl: Annotated[
        str | None, Field(description="The copy in the size that was asked for; null if none was, or there is none.")
    ]


class StoredFile(TypedDict):
    id: str
    user_id: Annotated[str | None, Field(description="The user that it belongs to; null: the app itself.")]
    key: str
    filename: str
    content_type: str
    size_bytes: int
    public: Annotated[bool, Field(description="Whether every signed-in user may download it.")]
    created_at: datetime
    metadata: Annotated[dict[str, str], Field(description="The texts that were stored with it.")]
    published_url: Annotated[
        str | None, Field(description="Where everybody may read it, without a credential; null if it is not published.")
    ]


class Folder(TypedDict):
    prefix: Annotated[str, Field(description="How the names of its files begin, with a slash at the end.")]
    files_count: int
    size_bytes: int


class Folders(TypedDict):
    folders: list[Folder]
    has_more: Annotated[bool, Field(description="Whether there are more than a thousand folders.")]


class Deletion(TypedDict):
    deleted_ids: list[str]
    missing_ids: Annotated[
        list[str], Field(description="Of the ids that were given, those of no file that you may delete.")
    ]
    has_more: Annotated[bool, Field(description="Whether more files than one call deletes have names of this prefix.")]


class Conditions(TypedDict):
    if_range: Annotated[
        Annotated[str, Text(500)],
        Field(default="", description="The ETag or Last-Modified of what you have a part of."),
    ]
    if_none_match: Annotated[Annotated[str, Text(2000)], Field(default="", description="The ETag of what you have.")]
    if_modified_since: Annotated[
        Annotated[str, Text(100)], Field(default="", description="The Last-Modified of what you have.")
    ]


class FileText(TypedDict):
    id: str
    filename: str
    content_type: str
    size_bytes: int
    text: str
    next_offset: Annotated[int | None, Field(description="The offset of the text that follows; null at the end.")]


class LocatedFile(TypedDict):
    id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str
    writer: Annotated[
        Literal["person", "outside"] | None, Field(description="Who stored it, as tools/core/guard/texts.py has it.")
    ]
    store_key: Annotated[str, Field(description="Where its bytes are in the object store of the app's region.")]


class NamedFile(TypedDict):
    id: str
    key: Annotated[str, Field(description="The file's name.")]
    content_type: str
    size_bytes: int
    content_base64: Annotated[
        str | None,
        Field(description="Its bytes; null if there are more than 256 KiB: get their address with op:files_download."),
    ]
    content: Annotated[str | None, Field(description="The same as text; null if it is not UTF-8.")]


class Progress(TypedDict):
    id: str
    received_bytes: int
    size_bytes: int | None
    """None while the client has not said it."""


Encoding = Literal["text", "base64"]
Bytes = Annotated[Any, WithJsonSchema({"type": "string", "format": "binary"})]
"""A stream; or, for a caller that cannot take one, a text that says where the bytes are."""


def decode_content(content: str, encoding: Encoding) -> bytes:
    """Returns the bytes of the content. Raises ContentInvalid or FileTooLarge."""
    try:
        raw = content.encode() if encoding == "text" else base64.b64decode(content, validate=True)
    except (ValueError, binascii.Error) as exc:
        raise ContentInvalid from exc
    if len(raw) > MOST_INLINE:
        raise FileTooLarge(
            f"The content has {len(raw)} bytes; a call takes up to {MOST_INLINE}.",
            remediation="Announce the file with op:files_upload and send its bytes to the address.",
            details={"file_size_bytes": len(raw), "max_file_size_bytes": MOST_INLINE},
        )
    return raw
