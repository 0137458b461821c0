"""/console/apps/{app}/collections/{collection}/evaluation: how well a person's test questions find the right
documents.
"""

import json
from typing import Any

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.pages.collection_search import WAYS
from baobab.http.console.pages.collections import COLLECTION, read_collection, read_number
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import BadRequest

PATH = COLLECTION + "/evaluation"
_MODES = {"all": "each of them, side by side", **WAYS}


async def show_evaluation(visit: Visit) -> Context:
    fields = {"questions": "", "top": "10", "mode": "all", "model": "", "judged": False, "reranked": False}
    return {**await read_collection(visit), **fields, "modes": _MODES, "measured": None}


async def evaluate(visit: Visit) -> Context:
    values = await read_collection(visit)
    form = visit.form
    mode, questions = form.get("mode", "all"), form.get("questions", "")
    is_judged, is_reranked = "judged" in form, "rerank" in form
    top, cases = read_number(form.get("top", "10"), "number of chunks", 50), _parse_lines(questions)
    arguments: dict[str, Any] = {"app_id": visit.parts["app"], "name": visit.parts["collection"], "cases": cases}
    model = (form.get("model") or None) if is_judged or is_reranked else None
    arguments |= {"topK": top, "rerank": is_reranked, "synthesize": is_judged, "model": model}
    measurements = {
        WAYS.get(way, way): await visit.call("rag_evaluate", **arguments, mode=way)
        for way in (WAYS if mode == "all" else (mode,))
    }
    fields = {"questions": questions, "top": str(top), "mode": mode, "model": form.get("model", "")}
    ticked_boxes = {"judged": is_judged, "reranked": is_reranked}
    for measurement in measurements.values():
        for case, result in zip(cases, measurement["cases"], strict=True):
            result["missing"] = [document for document in case["relevant"] if document not in result["found"]]
    return {**values, **fields, **ticked_boxes, "title": "Evaluation", "modes": _MODES, "measured": measurements}


def _parse_lines(text: str) -> list[dict[str, Any]]:
    """Returns the question of each line. Raises BadRequest, which names the line."""
    cases = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
        except (ValueError, RecursionError) as exc:
            raise BadRequest(f"Line {number} is not JSON.") from exc
        if not isinstance(case, dict) or not isinstance(case.get("relevant"), list):
            raise BadRequest(f'Line {number} must be an object with "query" and "relevant", a list of documents.')
        cases.append({"query": case.get("query"), "relevant": case["relevant"]})
    return cases


PAGES = (Page(PATH, "Evaluate a collection", "collection_evaluation.html", show_evaluation),)
FORMS = (Form(PATH + "/measure", evaluate, "collection_evaluation.html"),)
