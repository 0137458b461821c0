"""The documents that filters have chosen, kept until their collection changes."""

import asyncio
import hashlib
import json
from collections import OrderedDict
from typing import Any

from sqlalchemy import select

from baobab.tools.core import Call, Services
from baobab.tools.rag.filters import compile_filter
from baobab.tools.rag.tables import documents
from baobab.tools.rag.vector_search import Scope

_MOST_KEPT, _MOST_IDS = 1_000, 200_000


class ChosenDocuments:
    """Applies filters. An app asks with the same few again and again, and each reads the metadata of all documents."""

    def __init__(self, _services: Services) -> None:
        # By app, collection, owner and filter: the revision of the collection, and the ids.
        self._choices: OrderedDict[tuple[str, str, str | None, bytes], tuple[tuple[int, int], tuple[str, ...]]] = (
            OrderedDict()
        )
        self._ids = 0

    async def choose(self, call: Call, scope: Scope, metadata_filter: dict[str, Any]) -> tuple[str, ...]:
        """Returns the ids of the documents in the scope that match. Raises FilterInvalid, FilterTypeInvalid."""
        matches = compile_filter(metadata_filter)
        digest = hashlib.sha256(json.dumps(metadata_filter, sort_keys=True).encode()).digest()
        name = (scope.app_id, scope.collection_id, scope.owner, digest)
        cached_choice = self._choices.get(name)
        if cached_choice is not None and cached_choice[0] == scope.revision:
            self._choices.move_to_end(name)
            return cached_choice[1]
        query = select(documents.c.id, documents.c.metadata)
        query = query.where(*scope.list_conditions(call.stores.database.dialect))
        async with call.reading() as execute:
            rows = (await execute(query, scope.list_parameters())).all()
        ids = await asyncio.to_thread(lambda: tuple(row.id for row in rows if matches(row.metadata)))
        self._keep(name, scope.revision, ids)
        return ids

    def _keep(self, name: tuple[str, str, str | None, bytes], revision: tuple[int, int], ids: tuple[str, ...]) -> None:
        _, earlier_ids = self._choices.pop(name, (revision, ()))
        self._choices[name] = revision, ids
        self._ids += len(ids) - len(earlier_ids)
        while len(self._choices) > _MOST_KEPT or self._ids > _MOST_IDS:
            _, (_, dropped_ids) = self._choices.popitem(last=False)
            self._ids -= len(dropped_ids)
