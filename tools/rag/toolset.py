"""The toolset of retrieval."""

from baobab.tools.core.errors import AppMigrating, RateLimited, Unavailable
from baobab.tools.core.toolset import Toolset
from baobab.tools.rag.tables import APP_TABLES

rag = Toolset(
    "rag",
    "Retrieval: collections of documents, searched by meaning and by words, with answers that name their sources.",
    base="/v1/{app_id}/rag",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
)
