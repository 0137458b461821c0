"""Access objects of collections: who may do what in them.

Accounts of the app's organisation and keys of the app see and manage everything. The users of the app make and delete
no collections; what they see of the documents is the collection's access mode. Visitors read public collections, which
hold no documents of users. What a caller may not see is answered as if it were not there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, select

from baobab.storage.sql.database import Execute
from baobab.tools.core import Anonymous, BaobabError, Call, Caller, EndUser, Forbidden, Unauthenticated
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.guard.read_text import ReadText
from baobab.tools.core.guard.texts import is_own_text
from baobab.tools.rag.errors import CollectionNotFound, DocumentNotFound, NotForUsers
from baobab.tools.rag.tables import collections, documents

Row = Any

PUBLIC = "public"
_READ_BY_ALL = ("shared", PUBLIC)
"""The access modes in which users see all documents, and change none."""
_KNOWN_TO_USERS = collections.c.access_mode != "custom"
_KNOWN_TO_VISITORS = collections.c.access_mode == PUBLIC
# Built once: each search and each document asks for its collection.
_OF_APP = select(collections).where(collections.c.app_id == bindparam("app"))
_LIST = _OF_APP.order_by(collections.c.name)
_LIST_FOR_USER = _LIST.where(_KNOWN_TO_USERS)
_FIND = _OF_APP.where(collections.c.name == bindparam("name"))
_FIND_FOR_USER = _FIND.where(_KNOWN_TO_USERS)
_LIST_FOR_VISITOR = _LIST.where(_KNOWN_TO_VISITORS)
_FIND_FOR_VISITOR = _FIND.where(_KNOWN_TO_VISITORS)


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


@dataclass(frozen=True, slots=True)
class Readers:
    """Admits those who run the app, its users, and visitors, who reach public collections only."""

    anonymous: bool = True
    credential: bool = True
    description: str = "A member of the app's organisation, a key of the app, or a user of it; visitors where the "
    "collection is public."
    raises: tuple[type[BaobabError], ...] = OF_APP.raises

    def admits(self, caller: Caller) -> bool:
        return isinstance(caller, Anonymous) or OF_APP.admits(caller)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        caller = call.caller
        if not isinstance(caller, Anonymous):
            await OF_APP.authorise(call, arguments)
        elif caller.app_id not in (None, call.require_app().id):
            raise Forbidden("This anon key is another app's.")


MANAGERS, OF_COLLECTION, READERS = Managers(), OF_APP, Readers()


def owner_of(caller: Caller) -> str | None:
    """Returns the user whose document a caller adds; None for a document of the app itself."""
    return caller.user_id if isinstance(caller, EndUser) else None


def limit_to_owner(caller: Caller, collection: Row) -> str | None:
    """Returns the user whose documents alone a caller may see in a collection; None if the caller sees all."""
    return caller.user_id if isinstance(caller, EndUser) and collection.access_mode not in _READ_BY_ALL else None


def is_visible_to(caller: Caller, collection: Row) -> list[ColumnElement[bool]]:
    """Returns the conditions for documents of a collection that a caller may see."""
    owner = limit_to_owner(caller, collection)
    return [] if owner is None else [documents.c.user_id == owner]


def describe_text(collection: Row, document: Row) -> ReadText:
    """Says whose text a document is. document: a row with its id, names, user, writers and versions.

    While its next version is prepared, its name is that version's and its text the earlier one's.
    """
    writers = [
        *([document.writer] if document.version is not None else []),
        *([document.next_writer] if document.next_version is not None else []),
    ]
    is_own = document.user_id is None and all(
        is_own_text(writer, in_own_place=bool(collection.own_text)) for writer in writers
    )
    name = document.title or document.filename or document.id
    return ReadText("document", name, is_own, collection.name, user_id=document.user_id)


def require_changeable(caller: Caller, collection: Row) -> None:
    """Raises NotForUsers where users see documents that are not theirs to change or delete."""
    if isinstance(caller, EndUser) and collection.access_mode in _READ_BY_ALL:
        raise NotForUsers(
            f"Users of the app may not delete or replace documents of a {collection.access_mode} collection."
        )


def require_extensible(caller: Caller, collection: Row) -> None:
    """Raises NotForUsers where users may add no documents, because visitors would read them."""
    if isinstance(caller, EndUser) and collection.access_mode == PUBLIC:
        raise NotForUsers("Users of the app may not add documents to a public collection, because visitors read it.")


async def list_collections(call: Call) -> Sequence[Row]:
    """Lists the collections that a caller may know of, by name."""
    query = _choose(call.caller, _LIST, _LIST_FOR_USER, _LIST_FOR_VISITOR)
    return (await call.read(query, {"app": call.require_app().id})).all()


async def load_collection(execute: Execute, call: Call, name: str) -> Row:
    """Raises CollectionNotFound; Unauthenticated for visitors, who might see it after signing in."""
    app_id = call.require_app().id
    query = _choose(call.caller, _FIND, _FIND_FOR_USER, _FIND_FOR_VISITOR)
    row = (await execute(query, {"app": app_id, "name": name})).first()
    if row is None and isinstance(call.caller, Anonymous):
        raise Unauthenticated("The app has no public collection of this name.")
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


def _choose(caller: Caller, query: Any, for_user: Any, for_visitor: Any) -> Any:
    if isinstance(caller, Anonymous):
        return for_visitor
    return for_user if isinstance(caller, EndUser) else query
