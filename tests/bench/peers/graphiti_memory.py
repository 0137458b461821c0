"""Graphiti with texts as episodes, in its own environment: graphiti_memory.py ADDRESS KEY QUESTIONS FIRST FOLDER.

Its vectors are made by the server at the address, as ours are; its graph is Kuzu in memory. A stub answers in place of
a language model, at once and always the same: that the text is a fact about a subject of its own. So this measures
Graphiti without the time of a model, and its recall with perfect extraction.
"""

import asyncio
import json
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphiti_core import Graphiti
from graphiti_core.cross_encoder.client import CrossEncoderClient
from graphiti_core.driver.driver import GraphProvider
from graphiti_core.driver.kuzu_driver import KuzuDriver
from graphiti_core.embedder.openai import OpenAIEmbedder, OpenAIEmbedderConfig
from graphiti_core.graph_queries import get_fulltext_indices
from graphiti_core.llm_client.client import LLMClient
from graphiti_core.search.search_config_recipes import EDGE_HYBRID_SEARCH_RRF

_MODEL, _DIMENSIONS = "baobab/minilm-l6-v2", 384


class Stub(LLMClient):
    """Answers what Graphiti asks a model about the text that is being added."""

    def __init__(self) -> None:
        super().__init__(None)
        self.number, self.text, self.calls = 0, "", 0

    async def _generate_response(self, messages: Any, response_model: Any = None, *_: Any, **__: Any) -> dict[str, Any]:
        self.calls += 1
        name = "" if response_model is None else response_model.__name__
        subject = f"Subject {self.number}"
        if name == "ExtractedEntities":
            return {"extracted_entities": [{"name": each, "entity_type_id": 0} for each in ("Team", subject)]}
        if name == "ExtractedEdges":
            edge = {"source_entity_name": "Team", "target_entity_name": subject, "relation_type": "KNOWS"}
            return {"edges": [{**edge, "fact": self.text}]}
        # Nothing is a duplicate, nothing contradicts, nothing has a date or a summary.
        schema = {} if response_model is None else response_model.model_json_schema()["properties"]
        return {field: [] for field, definition in schema.items() if definition.get("type") == "array"}


class Unranked(CrossEncoderClient):
    async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
        return [(passage, 1.0) for passage in passages]


async def main(address: str, key: str, questions: str, first: str) -> None:
    payload, stub = json.loads(Path(questions).read_text()), Stub()
    config = OpenAIEmbedderConfig(
        embedding_model=_MODEL, api_key=key, base_url=f"{address}/v1", embedding_dim=_DIMENSIONS
    )
    driver = KuzuDriver()
    memory = Graphiti(graph_driver=driver, llm_client=stub, embedder=OpenAIEmbedder(config), cross_encoder=Unranked())
    await memory.build_indices_and_constraints()
    for query in get_fulltext_indices(GraphProvider.KUZU):
        await driver.execute_query(query)
    began = time.perf_counter()
    for stub.number, stub.text in enumerate(payload["memories"]):
        await memory.add_episode(f"memory {stub.number}", stub.text, "a note", datetime.now(UTC))
    add = (time.perf_counter() - began) * 1000 / len(payload["memories"])
    ways: dict[str, Any] = {}
    for name, least in (("as it comes", None), ("without a least closeness", 0.0)):
        way = EDGE_HYBRID_SEARCH_RRF.model_copy(deep=True)
        way.limit = int(first)
        if least is not None:
            way.edge_config.sim_min_score = least
        texts, seconds = [], []
        for question in payload["questions"]:
            began = time.perf_counter()
            results = await memory.search_(question, config=way)
            seconds.append(time.perf_counter() - began)
            texts.append([edge.fact for edge in results.edges])
        ways[name] = {"texts": texts, "closest": None, "search": statistics.median(seconds) * 1000}
    figures = {"add": add, "calls": stub.calls / len(payload["memories"]), "ways": ways}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
