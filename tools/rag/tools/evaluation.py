"""/v1/{app_id}/rag/collections/{name}/evaluate: how well questions find what should be found."""

from typing import Annotated

from pydantic import Field

from baobab.runtime.retrieval.rankings import measure_ndcg, measure_recall, measure_reciprocal_rank
from baobab.tools.core import AppId, Call, Guard, Mcp, Rest
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted
from baobab.tools.rag.access import OF_COLLECTION, Row, load_collection
from baobab.tools.rag.answers import judge_answer, split_sentences, write_answer
from baobab.tools.rag.errors import CollectionNotFound, FilterInvalid, FilterTypeInvalid
from baobab.tools.rag.schemas import (
    Case,
    CaseResult,
    CollectionName,
    Diversity,
    Evaluation,
    MetadataFilter,
    Mode,
    ModelId,
    TopK,
)
from baobab.tools.rag.search import SearchRequest, search
from baobab.tools.rag.toolset import rag


@rag.tool(
    "POST /collections/{name}/evaluate",
    access=OF_COLLECTION,
    effect="read",
    raises=(CollectionNotFound, FilterInvalid, FilterTypeInvalid, CreditsExhausted, BudgetExhausted),
    taints=True,
    rest=Rest(
        examples={
            "cases": [{"query": "How many holidays?", "relevant": ["0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"]}],
            "topK": 10,
        }
    ),
    guard=Guard(spends=frozenset({"synthesize", "rerank"})),
    mcp=Mcp(long_running=True),
)
async def rag_evaluate(
    call: Call,
    app_id: AppId,
    name: CollectionName,
    cases: Annotated[list[Case], Field(min_length=1, max_length=50)],
    topK: TopK = 10,
    mode: Mode = "hybrid",
    diversity: Diversity = 0.0,
    filter: MetadataFilter | None = None,
    rerank: bool = False,
    synthesize: bool = False,
    model: ModelId | None = None,
) -> Evaluation:
    """Measure how well a collection answers your questions: recall, nDCG and reciprocal rank of what is found.

    cases: questions, each with the documents that should be found.
    filter: only documents whose metadata match, as in op:rag_query; null for all.
    rerank: let a model put the best 30 chunks of each question in order first.
    synthesize: also let a model answer, and judge which sentences of the answers their sources support.
    model: the model that reranks, answers and judges; null for the app's default.
    """
    del app_id
    async with call.reading() as execute:
        collection = await load_collection(execute, call, name)
    results = []
    for number, case in enumerate(cases, 1):
        request = SearchRequest(case["query"], topK, 0.0, mode, diversity, filter, rerank, model)
        results.append(await _measure(call, collection, case, request, model, synthesize=synthesize))
        await call.progress(number, len(cases))
    evaluation: Evaluation = {
        "recall": _mean([result["recall"] for result in results]),
        "ndcg": _mean([result["ndcg"] for result in results]),
        "reciprocalRank": _mean([result["reciprocalRank"] for result in results]),
        "cases": results,
    }
    if synthesize:
        evaluation["faithfulness"] = _mean([result["faithfulness"] for result in results])
    return evaluation


async def _measure(
    call: Call, collection: Row, case: Case, request: SearchRequest, model: str | None, *, synthesize: bool
) -> CaseResult:
    chunks = await search(call, collection, request)
    ranking = list(dict.fromkeys(chunk["documentId"] for chunk in chunks))
    relevant = set(case["relevant"])
    result: CaseResult = {
        "query": case["query"],
        "found": ranking,
        "recall": measure_recall(ranking, relevant),
        "ndcg": round(measure_ndcg(ranking, relevant, request.top_k), 6),
        "reciprocalRank": round(measure_reciprocal_rank(ranking, relevant), 6),
    }
    if synthesize:
        answer, _ = await write_answer(call, request.query, chunks, model)
        sentences = split_sentences(answer, len(chunks))
        result["faithfulness"] = await judge_answer(call, sentences, chunks, model)
    return result


def _mean(numbers: list[float]) -> float:
    return round(sum(numbers) / len(numbers), 6)
