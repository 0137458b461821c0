"""The toolset of retrieval."""

from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.core.app_events import AppEvent
from baobab.tools.rag.clones import CLONES
from baobab.tools.rag.tables import APP_TABLES

READY, FAILED = "rag.document.ready", "rag.document.failed"
_SAMPLE = {
    "chunk_count": 12,
    "document_id": "5b2f7c9e-0000-4000-8000-000000000000",
    "collection_id": "0c9d1a55-0000-4000-8000-000000000000",
    "collection": "handbook",
    "filename": "returns.pdf",
    "user_id": None,
}
_FAILED_SAMPLE = {
    **{name: value for name, value in _SAMPLE.items() if name != "chunk_count"},
    "reason": "The file is empty.",
}

rag = Toolset(
    "rag",
    "Retrieval: collections of documents, searched by meaning and by words, with answers that name their sources.",
    base="/v1/{app_id}/rag",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
    clones=CLONES,
    events=(
        AppEvent("document.ready", READY, "A document was read and can be searched.", _SAMPLE, "document_id"),
        AppEvent("document.failed", FAILED, "A document could not be read.", _FAILED_SAMPLE, "document_id"),
    ),
)
