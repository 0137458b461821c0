"""The arguments and answers of retrieval. Names are written as the contract has them, with capitals inside."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from baobab.tools.core import JsonObject, NameText, Text, Uuid
from baobab.tools.core.types import encode_json

MOST_COLLECTIONS = 200
MOST_DOCUMENTS = 10_000
"""Of one collection."""
MOST_CHUNKS = 50_000
"""Of one document."""
MOST_TEXT = 5 * 2**20
"""Characters of a text that a call itself brings."""
MOST_BODY = 12 * 2**20
MOST_READ = 20_000
"""Characters of a document that a call answers."""
_MOST_METADATA = 16 * 1024

CollectionName = Annotated[
    str,
    Text(100, min_length=1, pattern=r"^[a-z0-9_-]+$"),
    Field(
        description="The collection's name: lower-case letters, digits, hyphens, underscores.", examples=["handbook"]
    ),
]
Description = Annotated[str, Text(500), Field(description="What the collection is for.")]
AccessMode = Annotated[
    Literal["private", "shared", "public", "custom"],
    Field(
        description="What users of the app may do: `private`, see and manage the documents that they added; "
        "`shared`, read all documents and add some; `public`, read all documents, as visitors may without signing in; "
        "`custom`, nothing."
    ),
]
ChunkSize = Annotated[int, Field(ge=100, le=4000, description="The most characters of a chunk.")]
ChunkOverlap = Annotated[int, Field(ge=0, le=500, description="Characters that a chunk repeats of the one before.")]
EmbeddingModel = Annotated[str, Text(200, min_length=1), Field(description="The model that makes the vectors.")]
DocumentId = Annotated[Uuid, Field(description="The document's id: `documentId` of its ingest.")]
DocumentText = Annotated[str, Text(MOST_TEXT, min_length=1), Field(description="The text itself, plain or Markdown.")]
ObjectId = Annotated[Uuid, Field(description="A file of the app: the `objectId` of its upload.")]
SourceUrl = Annotated[
    str,
    Text(2000, min_length=1),
    Field(
        description="A page or a file on the public web, by http or https.", examples=["https://example.com/guide.pdf"]
    ),
]
DocumentName = Annotated[str, NameText(255, min_length=1), Field(description="What the document is called.")]
Status = Literal["pending", "processing", "ready", "failed"]


def _check_size(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(encode_json(metadata)) > _MOST_METADATA:
        raise ValueError(f"must have at most {_MOST_METADATA} bytes as JSON")
    return metadata


Metadata = Annotated[
    JsonObject,
    AfterValidator(_check_size),
    Field(description="An object of your own, by which filters can choose documents."),
]
MetadataFilter = Annotated[
    JsonObject,
    AfterValidator(_check_size),
    Field(
        description='Only documents whose metadata match: {"lang": "en", "year": {"$gte": 2020}}. Operators: $eq, $ne, '
        "$in, $nin, $gt, $gte, $lt, $lte, $exists; $and, $or, $not."
    ),
]
QueryText = Annotated[str, Text(10_000, min_length=1), Field(description="What to look for, in words.")]
TopK = Annotated[int, Field(ge=1, le=50, description="The most chunks to return.")]
Threshold = Annotated[
    float,
    Field(ge=0, le=1, description="The lowest cosine similarity of chunk and query."),
]
Mode = Annotated[
    Literal["hybrid", "vector", "text"],
    Field(description="`hybrid` finds by meaning and by words together, `vector` by meaning, `text` by words alone."),
]
Diversity = Annotated[
    float, Field(ge=0, le=1, description="How different the chunks should be from each other: 0 to 1.")
]
ModelId = Annotated[str, Text(200, min_length=1), Field(description="The model that writes the answer.")]


class Collection(TypedDict):
    id: str
    name: str
    description: str | None
    accessMode: str
    chunkSize: int
    chunkOverlap: int
    embeddingModel: Annotated[
        str | None, Field(description="The model of its vectors; null before the first document.")
    ]
    ownText: Annotated[
        bool,
        Field(
            description="Whether an admin has marked its texts as the app's own: a run that reads them has read no "
            "text from outside."
        ),
    ]
    createdAt: datetime
    updatedAt: datetime
    warnings: NotRequired[Annotated[list[str], Field(description="Who may read it without being asked who they are.")]]


class DocumentCounts(TypedDict):
    total: int
    pending: int
    processing: int
    ready: int
    failed: int


class CollectionDetails(Collection):
    documentCount: Annotated[int, Field(description="Of the documents that you may see.")]
    chunkCount: int
    documentCounts: DocumentCounts


class IngestProgress(TypedDict):
    chunksDone: int
    chunksTotal: Annotated[int, Field(description="0 until the document has been read.")]


class RagDocument(TypedDict):
    id: str
    collectionId: str
    filename: str | None
    url: Annotated[str | None, Field(description="Where it was fetched from; null for a text or a file.")]
    status: str
    chunkCount: Annotated[int, Field(description="The chunks that searches see now.")]
    metadata: JsonObject
    errorMessage: str | None
    title: str | None
    mediaType: str | None
    pages: int | None
    progress: IngestProgress
    createdAt: datetime
    updatedAt: datetime


class IngestResult(TypedDict):
    documentId: str
    status: str
    errorMessage: NotRequired[Annotated[str | None, Field(description="With `wait_seconds`: why it failed.")]]
    message: str


class FoundChunk(TypedDict):
    text: str
    score: Annotated[float, Field(description="Cosine similarity to the query, up to 1.")]
    documentId: str
    metadata: JsonObject
    id: Annotated[str, Field(description="The chunk: the document, and its place in it.")]
    filename: str | None
    page: int | None
    headings: list[str]
    start: Annotated[int, Field(description="Where it begins in the document's text, in characters.")]
    end: int


class Sentence(TypedDict):
    text: str
    sources: Annotated[list[int], Field(description="The chunks that it cites, by their place in `chunks`, from 0.")]


class QueryResult(TypedDict):
    chunks: list[FoundChunk]
    answer: NotRequired[Annotated[str, Field(description="Only with `synthesize`; cites chunks as [1], [2].")]]
    model: NotRequired[str]
    sentences: NotRequired[list[Sentence]]


class DocumentPart(TypedDict):
    documentId: str
    filename: str | None
    text: str
    start: int
    end: int
    nextOffset: Annotated[int | None, Field(description="The offset of the text that follows; null at the end.")]


class Case(TypedDict):
    query: Annotated[str, Text(10_000, min_length=1)]
    relevant: Annotated[
        list[DocumentId], Field(min_length=1, max_length=100, description="The documents that should be found.")
    ]


class CaseResult(TypedDict):
    query: str
    found: Annotated[list[str], Field(description="The documents that were found, each once, the best first.")]
    recall: float
    ndcg: float
    reciprocalRank: float
    faithfulness: NotRequired[
        Annotated[float, Field(description="The part of the answer's sentences that its sources support.")]
    ]


class Evaluation(TypedDict):
    recall: Annotated[float, Field(description="Mean of all cases, as are the others.")]
    ndcg: float
    reciprocalRank: float
    faithfulness: NotRequired[float]
    cases: list[CaseResult]


class Reindexing(TypedDict):
    message: str
    chunkSize: int
    chunkOverlap: int
    embeddingModel: str | None
