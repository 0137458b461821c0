"""Access objects of collections: who may do what in them.

Accounts of the app's organisation and keys of the app see and manage everything. The users of the app make and delete
no collections; what they see of the documents is the collection's access mode. What a caller may not see is answered as
if it were not there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, select

from baobab.storage.database import Execute
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.auth.callers import Caller, EndUser
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BaobabError
from baobab.tools.rag.errors import CollectionNotFound, DocumentNotFound, NotForUsers
from baobab.tools.rag.tables import collections, documents

Row = Any

_KNOWN_TO_USERS = collections.c.access_mode != "custom"
# Built once: each search and each document asks for its collection.
_OF_APP = select(collections).where(collections.c.app_id == bindparam("app"))
_LIST = _OF_APP.order_by(collections.c.name)
_LIST_FOR_USER = _LIST.where(_KNOWN_TO_USERS)
_FIND = _OF_APP.where(collections.c.name == bindparam("name"))
_FIND_FOR_USER = _FIND.where(_KNOWN_TO_USERS)


@dataclass(frozen=True, slots=True)
class Managers:
    """Admits those who run the app, and refuses its users with the contract's error."""

    anonymous: bool = False
    credential: bool = True
    description: str = "A member of the app's organisation, or a key of the app; not a user of the app."
    raises: tuple[type[BaobabError], ...] = (*OF_APP.raises, NotForUsers)

    def admits(self, caller: Caller) -> bool:
        return OF_APP.admits(caller) and not isinstance(caller, EndUser)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        await OF_APP.authorise(call, arguments)
        if isinstance(call.caller, EndUser):
            raise NotForUsers


MANAGERS, OF_COLLECTION = Managers(), OF_APP


def owner_of(caller: Caller) -> str | None:
    """Returns the user whose document a caller adds; None for a document of the app itself."""
    return caller.user_id if isinstance(caller, EndUser) else None


def limit_to_owner(caller: Caller, collection: Row) -> str | None:
    """Returns the user whose documents alone a caller may see in a collection; None if the caller sees all."""
    return caller.user_id if isinstance(caller, EndUser) and collection.access_mode != "shared" else None


def is_visible_to(caller: Caller, collection: Row) -> list[ColumnElement[bool]]:
    """Returns the conditions for documents of a collection that a caller may see."""
    owner = limit_to_owner(caller, collection)
    return [] if owner is None else [documents.c.user_id == owner]


def require_changeable(caller: Caller, collection: Row) -> None:
    """Raises NotForUsers where users see documents that are not theirs to change or delete."""
    if isinstance(caller, EndUser) and collection.access_mode == "shared":
        raise NotForUsers("Users of the app may add documents to a shared collection, but not delete or replace any.")


async def list_collections(call: Call) -> Sequence[Row]:
    """Lists the collections that a caller may know of, by name."""
    query = _LIST_FOR_USER if isinstance(call.caller, EndUser) else _LIST
    return (await call.read_once(query, {"app": call.require_app().id})).all()


async def load_collection(execute: Execute, call: Call, name: str) -> Row:
    """Raises CollectionNotFound."""
    app_id = call.require_app().id
    query = _FIND_FOR_USER if isinstance(call.caller, EndUser) else _FIND
    row = (await execute(query, {"app": app_id, "name": name})).first()
    if row is None:
        raise CollectionNotFound
    return row


async def load_document(execute: Execute, call: Call, collection: Row, document_id: str) -> Row:
    """Raises DocumentNotFound."""
    conditions = (
        documents.c.app_id == collection.app_id,
        documents.c.id == document_id,
        documents.c.collection_id == collection.id,
        *is_visible_to(call.caller, collection),
    )
    row = (await execute(select(documents).where(*conditions))).first()
    if row is None:
        raise DocumentNotFound
    return row
