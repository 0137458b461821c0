"""/v1/{app_id}/rag/collections/{name}/query: find chunks, and have a model answer from them."""

from typing import cast

from baobab.tools.core import Anonymous, AppId, Call, Guard, Mcp, Rest
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted
from baobab.tools.core.stream import Stream
from baobab.tools.rag.access import READERS, load_collection
from baobab.tools.rag.answers import split_sentences, stream_answer, write_answer
from baobab.tools.rag.errors import CollectionNotFound, FilterInvalid, FilterTypeInvalid, NotForVisitors
from baobab.tools.rag.schemas import (
    CollectionName,
    Diversity,
    MetadataFilter,
    Mode,
    ModelId,
    QueryResult,
    QueryText,
    Threshold,
    TopK,
)
from baobab.tools.rag.search import SearchRequest, search
from baobab.tools.rag.toolset import rag


@rag.tool(
    "POST /collections/{name}/query",
    access=READERS,
    effect="read",
    raises=(CollectionNotFound, FilterInvalid, FilterTypeInvalid, NotForVisitors, CreditsExhausted, BudgetExhausted),
    taints=True,
    rest=Rest(
        examples={"query": "How many holidays are there?", "topK": 3, "filter": {"lang": "en"}},
        further_names={"document": {"id": "documentId", "filename": "filename"}, "top_k": "topK"},
    ),
    guard=Guard(spends=frozenset({"synthesize", "rerank"})),
    mcp=Mcp(long_running=True),
)
async def rag_query(
    call: Call,
    app_id: AppId,
    name: CollectionName,
    query: QueryText,
    topK: TopK = 5,
    threshold: Threshold = 0.0,
    filter: MetadataFilter | None = None,
    mode: Mode = "hybrid",
    diversity: Diversity = 0.0,
    rerank: bool = False,
    synthesize: bool = False,
    model: ModelId | None = None,
    stream: bool = False,
) -> QueryResult:
    """Find the chunks of documents that answer a question, the best first; op:rag_read shows the text around them.

    filter: only documents whose metadata match, such as {"lang": "en", "year": {"$gte": 2020}}; null for all.
        Operators: $eq, $ne, $in, $nin, $gt, $gte, $lt, $lte, $exists; $and, $or, $not.
    rerank: let a model put the best 30 chunks in order first; this costs a call to the model.
    synthesize: let a model write an answer that cites the chunks as [1], [2].
    model: the model that reranks and writes the answer; null for the app's default.
    stream: with `synthesize`, send the answer as server-sent events: `chunks`, `delta`, `sentence`, `done`. Over MCP,
        it comes in one piece.
    """
    del app_id
    if isinstance(call.caller, Anonymous) and (synthesize or rerank):
        raise NotForVisitors
    async with call.reading() as execute:
        collection = await load_collection(execute, call, name)
    found_chunks = await search(
        call, collection, SearchRequest(query, topK, threshold, mode, diversity, filter, rerank, model)
    )
    if not synthesize:
        return {"chunks": found_chunks}
    if stream and call.context.streams:
        return cast(QueryResult, Stream(await stream_answer(call, query, found_chunks, model)))
    answer, used_model = await write_answer(call, query, found_chunks, model)
    return {
        "chunks": found_chunks,
        "answer": answer,
        "model": used_model,
        "sentences": split_sentences(answer, len(found_chunks)),
    }
