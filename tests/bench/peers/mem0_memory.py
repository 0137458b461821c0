"""Mem0 with texts added as they are: python mem0_memory.py ADDRESS KEY QUESTIONS FIRST FOLDER, in its own environment.

Its vectors are made by the server at the address, as ours are; its store is Qdrant's local one.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from mem0 import Memory

_MODEL, _DIMENSIONS = "baobab/minilm-l6-v2", 384


def main(address: str, key: str, questions: str, first: str, folder: str) -> None:
    payload = json.loads(Path(questions).read_text())
    provider: dict[str, Any] = {
        "provider": "openai",
        "config": {"model": _MODEL, "api_key": key, "openai_base_url": f"{address}/v1"},
    }
    embedder = {**provider, "config": {**provider["config"], "embedding_dims": _DIMENSIONS}}
    store: dict[str, Any] = {
        "collection_name": "bench",
        "embedding_model_dims": _DIMENSIONS,
        "path": f"{folder}/qdrant",
        "on_disk": True,
    }
    memory = Memory.from_config(
        {
            "llm": provider,
            "embedder": embedder,
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": f"{folder}/history.db",
        }
    )
    began = time.perf_counter()
    for text in payload["memories"]:
        memory.add(text, user_id="bench", infer=False)
    add = (time.perf_counter() - began) * 1000 / len(payload["memories"])
    texts, closest, seconds = [], [], []
    for question in payload["questions"]:
        began = time.perf_counter()
        results = memory.search(question, filters={"user_id": "bench"}, top_k=int(first))["results"]
        seconds.append(time.perf_counter() - began)
        texts.append([row["memory"] for row in results])
        closest.append(results[0]["score"] if results else 0.0)
    way = {"texts": texts, "closest": closest, "search": statistics.median(seconds) * 1000}
    figures = {"add": add, "calls": 0, "ways": {"texts added as they are": way}}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
