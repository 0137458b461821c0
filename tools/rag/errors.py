"""The errors of retrieval, in the contract's codes."""

from baobab.tools.core import BadRequest, BaobabError, Conflict, Forbidden, NotFound
from baobab.tools.core.errors import InvalidType, UnknownField


class CollectionNotFound(NotFound):
    """Also answered for a collection that the caller may not see."""

    summary = "There is no such collection."
    remediation = "op:rag_collections_list lists the collections that you may see."


class DocumentNotFound(NotFound):
    """Also answered for a document that the caller may not see."""

    summary = "There is no such document in this collection."
    remediation = "op:rag_documents_list lists the documents that you may see."


class CollectionExists(Conflict):
    summary = "The app already has a collection with this name."
    remediation = "Choose another name, or use the collection that is there."


class NotForUsers(Forbidden):
    code = "AUTH_FORBIDDEN"
    summary = "The users of an app may not do this."
    remediation = "Call it with a key of the app, or as a member of its organisation."


class NotForVisitors(Forbidden):
    code = "AUTH_FORBIDDEN"
    summary = "Visitors may not have a model answer or put chunks in order: that would spend the app's credits."
    remediation = "Leave out `synthesize` and `rerank`, or let a public agent answer from the chunks."


class HoldsUsersDocuments(Conflict):
    summary = "Users of the app have added documents to this collection, which would become public."
    remediation = (
        "Create another collection with `accessMode` `public`, and add to it what everybody may read. "
        "details.documents says how many there are."
    )


class SourceMissing(BadRequest):
    code = "VALIDATION_INVALID_SCHEMA"
    summary = "A document needs exactly one source."
    remediation = "Send one of these: `text`, the `storage_object_id` of a file, or a `url`."


class OverlapTooLarge(BadRequest):
    code = "VALIDATION_INVALID_SCHEMA"
    summary = "chunkOverlap must be smaller than chunkSize."
    remediation = "Leave chunkOverlap out, or choose a smaller one."


class FileRefused(InvalidType):
    summary = "Files of this type cannot be read as documents."
    remediation = "Ingest one of the types in details.supported, or send the text itself."


class VectorsUnavailable(BaobabError):
    code = "RAG_UNAVAILABLE"
    status = 503
    summary = "The server's Postgres lacks the extension pgvector, so documents cannot be searched."
    remediation = "Ask the operator to install pgvector 0.7 or later and to restart the server."


class TooManyCollections(BaobabError):
    code = "RAG_COLLECTIONS_LIMIT"
    status = 402
    summary = "The app has reached its limit of collections."
    remediation = (
        "Put the documents into a collection that there is, and tell them apart by their metadata, or ask the operator"
        " for another plan."
    )


class TooManyDocuments(BaobabError):
    code = "RAG_DOCUMENTS_LIMIT"
    status = 402
    summary = "The collection has reached its limit of documents."
    remediation = "Create another collection with op:rag_collections_create."


class FilterInvalid(UnknownField):
    summary = "The filter is not valid."
    remediation = (
        'Send pairs of a name and a value, such as {"lang": "en"}, or conditions with $eq, $ne, $in, $nin, $gt, $gte,'
        " $lt, $lte and $exists; $and, $or and $not combine filters."
    )


class FilterTypeInvalid(InvalidType):
    summary = "A value in the filter has the wrong type."
    remediation = "Compare with a number or a text; $in and $nin take a list, $exists true or false."


class StorageFull(BaobabError):
    code = "QUOTA_STORAGE_EXCEEDED"
    status = 402
    summary = "The app has no storage left for this document."
    remediation = (
        "Ask the operator for another plan. Delete documents (op:rag_documents_delete) only if whoever runs the app "
        "says which."
    )
