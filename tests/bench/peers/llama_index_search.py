"""LlamaIndex as it comes: python llama_index_search.py ADDRESS KEY PASSAGES FIRST, in its own environment.

Its default splitter, its default store in memory and its default retriever; the vectors are made by the server at the
address, as ours are. It prints the names of the passages that it finds for each question, the best first.
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding

_MODEL = "baobab/minilm-l6-v2"


class ServerEmbedding(BaseEmbedding):  # type: ignore[misc]
    """The vectors of a Baobab server."""

    address: str
    key: str

    def _ask(self, texts: list[str]) -> list[list[float]]:
        body = json.dumps({"model": _MODEL, "input": texts}).encode()
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        request = urllib.request.Request(f"{self.address}/v1/embeddings", body, headers)
        with urllib.request.urlopen(request) as answer:
            return [row["embedding"] for row in json.load(answer)["data"]]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._ask([query])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._ask([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._ask(texts)


def main(address: str, key: str, passages: str, first: str) -> None:
    payload: dict[str, Any] = json.loads(Path(passages).read_text())
    documents = [Document(text=text, doc_id=name) for name, text in payload["passages"].items()]
    embedding = ServerEmbedding(address=address, key=key)
    index = VectorStoreIndex.from_documents(documents, embed_model=embedding)
    retriever = index.as_retriever(similarity_top_k=int(first))
    rankings = [[node.node.ref_doc_id for node in retriever.retrieve(question)] for question, _ in payload["questions"]]
    sys.stdout.write(json.dumps(rankings) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
