"""Retrieval through the registry, on files: searches in a hundred thousand chunks, what adding documents costs beyond
the embedder, and how good the rankings are, beside LlamaIndex with the same sentence model.
"""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert, update

from baobab import composition
from baobab.runtime.gateway.builtin.embeddings import load_best
from baobab.runtime.retrieval.rankings import measure_ndcg, measure_recall
from baobab.settings import load_settings
from baobab.storage.clock import SystemClock
from baobab.storage.sql.full_text import split_words, tag_words
from baobab.tools.core.auth.callers import Account
from baobab.tools.rag.tables import chunks, collections, documents, vectors
from tests.bench.peers.environments import LLAMA_INDEX, install_peer
from tests.bench.rag_vectors import Cost
from tests.cli.server_process import run_server
from tests.tools.conftest import ToolHarness

CHUNKS = 100_000
_OF_DOCUMENT, _SEARCHES, _DIMENSIONS, _MODEL = 50, 40, 384, "baobab/minilm-l6-v2"
_INGESTED, _SENTENCES, _ROUNDS, _IDLE_SECONDS = 12, 60, 5, 3
_EMBEDDED, _TOKENS = 200, 148
_FIRST = 10
_PATIENCE_SECONDS = 600
_APP = "app_000000000001"
_WAYS = ("hybrid", "text", "vector")
_PASSAGES = Path(__file__).with_name("rag_passages.json")
_PEER = Path(__file__).parent / "peers" / "llama_index_search.py"
_KEY = "bb_sk_" + "R" * 40
# Words of made-up texts: the first are much more frequent than the last, as in real ones.
_WORDS = [f"word{number}" for number in range(20_000)]


def run() -> dict[str, Any]:
    return asyncio.run(_measure()) | {"LlamaIndex": _run_peer()}


async def _measure() -> dict[str, Any]:
    async with _open_harness() as (harness, owner):
        await _fill(harness, owner)
        searches = {way: await _time_searches(harness, owner, way) for way in _WAYS}
    async with _open_harness() as (harness, owner):
        ingest = await _measure_ingest(harness, owner)
    async with _open_harness() as (harness, owner):
        quality = await _measure_quality(harness, owner)
    return {"searches": searches, "ingest": ingest, "embedder": measure_embedder(), "quality": quality}


def report(figures: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of the report."""
    yield f"Searches in a collection of {CHUNKS} chunks, on files{'':28}{'ms':>9}{'CPU ms':>9}"
    for way, cost in figures["searches"].items():
        limit = "; to hold below 30" if way == "hybrid" else ""
        yield f"  {way + ', the vector of the question included' + limit:64}{cost.wall:9.2f}{cost.cpu:9.2f}"
    ingest = figures["ingest"]
    yield f"Adding {_INGESTED} documents with {ingest.pop('chunks')} chunks: CPU seconds, medians of {_ROUNDS} rounds"
    beyond = ingest.pop("beyond")
    for name, seconds in ingest.items():
        yield f"  {name:64}{seconds:9.2f}"
    yield f"  {'beyond the embedder, to hold at most 0.20':64}{beyond:9.2f}"
    yield f"The embedder alone, CPU seconds for {_EMBEDDED} texts of {_TOKENS} tokens{'':17}{figures['embedder']:9.2f}"
    yield f"Quality: {figures['quality']['questions']} questions of our own{'':35}{'nDCG@10':>9}{'Recall@10':>11}"
    for way in (*_WAYS, "LlamaIndex"):
        name = f"LlamaIndex {LLAMA_INDEX.version}, its defaults" if way == "LlamaIndex" else way
        scores = figures[way] if way == "LlamaIndex" else figures["quality"][way]
        yield f"  {name:64}" + (f"{scores[0]:9.4f}{scores[1]:11.4f}" if scores else "  could not be installed")


@asynccontextmanager
async def _open_harness() -> AsyncIterator[tuple[ToolHarness, Account]]:
    clock: Any = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings({"BAOBAB_PLAN": "enterprise"}, data=Path(folder))
        async with composition.open_application(settings, clock=clock) as application:
            harness = ToolHarness(application.services, application.registry, clock, Path(folder))
            owner = await harness.sign_up("ada@example.com")
            await harness.create_app_row(owner.organisation_id, _APP)
            await harness.call("rag_collections_create", owner, app_id=_APP, name="bench")
            yield harness, owner


async def _fill(harness: ToolHarness, owner: Account) -> None:
    """Chunks of made-up texts with vectors at random: what a search costs does not depend on what they mean."""
    random = np.random.default_rng(11)
    details = await harness.call("rag_collections_get", owner, app_id=_APP, name="bench")
    own = {"app_id": _APP, "collection_id": details["id"]}
    now, database = harness.clock.now(), next(iter(harness.services.regions.values())).database
    for number in range(CHUNKS // _OF_DOCUMENT):
        document = {
            **own,
            "id": harness.services.ids.uuid_at(now),
            "filename": f"document-{number}.md",
            "metadata": {"tenth": number % 10 == 0},
            "status": "ready",
            "version": 1,
            "chunk_count": _OF_DOCUMENT,
            "embedding_model": _MODEL,
            "dimensions": _DIMENSIONS,
            "chunks_done": _OF_DOCUMENT,
            "chunks_total": _OF_DOCUMENT,
            "attempts": 0,
            "keeps_text": False,
            "size_bytes": 0,
            "sha256": f"{number:064x}",
            "created_at": now,
            "updated_at": now,
        }
        unit_vectors = random.standard_normal((_OF_DOCUMENT, _DIMENSIONS), dtype=np.float32)
        unit_vectors = (unit_vectors / np.linalg.norm(unit_vectors, axis=1, keepdims=True)).astype("<f2")
        places = [{**own, "document_id": document["id"], "version": 1, "position": at} for at in range(_OF_DOCUMENT)]
        texts = [_build_text(number * _OF_DOCUMENT + at) for at in range(_OF_DOCUMENT)]
        async with database.writing_unit(lock=_APP, bulk=True) as unit:
            await unit.execute(insert(documents), document)
            await unit.execute(
                insert(chunks),
                [
                    {
                        **place,
                        "number": number * _OF_DOCUMENT + place["position"],
                        "start_char": 0,
                        "end_char": len(text),
                        "headings": [],
                        "text": text,
                        "words": " ".join(tag_words(details["id"], split_words(text))),
                    }
                    for place, text in zip(places, texts, strict=True)
                ],
            )
            rows = [
                {**place, "dimensions": _DIMENSIONS, "vector": vector.tobytes()}
                for place, vector in zip(places, unit_vectors, strict=True)
            ]
            await unit.execute(insert(vectors), rows)
    async with database.writing_unit(lock=_APP) as unit:
        changes = {"embedding_model": _MODEL, "dimensions": _DIMENSIONS, "revision": 1}
        await unit.execute(update(collections).values(changes))


def _build_text(number: int) -> str:
    """Eighty words, of which some are frequent."""
    return " ".join(
        _WORDS[(number * 7919 + place * place * 104_729) % (10 ** (2 + place % 3) * 2)] for place in range(80)
    )


async def _time_searches(harness: ToolHarness, owner: Account, way: str) -> Cost:
    times, cpu_times = [], []
    for number in range(-3, _SEARCHES):
        words = _build_text((number * 997) % CHUNKS).split()
        began, cpu = time.perf_counter(), time.process_time()
        query = " ".join(words[3:8])
        result = await harness.call("rag_query", owner, app_id=_APP, name="bench", query=query, mode=way, topK=10)
        assert result["chunks"]
        if number >= 0:
            times.append(time.perf_counter() - began)
            cpu_times.append(time.process_time() - cpu)
    return Cost(statistics.median(times) * 1000, statistics.median(cpu_times) * 1000)


async def _measure_ingest(harness: ToolHarness, owner: Account) -> dict[str, float]:
    """Seconds of the processor, the processes that read documents included: medians of rounds of the embedder alone,
    the server that waits, and the documents.

    What a server costs that waits for work is no cost of a document. On a busy machine, where adding takes longer, it
    would count the more.
    """
    passages = json.loads(_PASSAGES.read_text())["passages"]
    sentences = [sentence for text in passages.values() for sentence in text.split(". ")]

    async def add(first: int, count: int) -> None:
        for number in range(first, first + count):
            own = [sentences[(number % 1000 * 37 + at) % len(sentences)] for at in range(_SENTENCES)]
            text = f"# Document {number}\n\n" + ". ".join(own)
            await harness.call("rag_ingest", owner, app_id=_APP, name="bench", text=text, filename=f"{number}.md")
        await _wait_until_ready(harness, owner)

    # What is loaded once is no cost of a document.
    await add(0, _INGESTED)
    contents = await _read_contents(harness)
    embedder = load_best()
    rounds: list[tuple[float, float, float]] = []
    for number in range(1, _ROUNDS + 1):
        began = _read_worked()
        for of_one in contents:
            for start in range(0, len(of_one), 32):
                embedder.embed(of_one[start : start + 32])
        alone = _read_worked() - began
        began, since = _read_worked(), time.perf_counter()
        for _ in range(_IDLE_SECONDS):
            await _wait_until_ready(harness, owner)
            await asyncio.sleep(1)
        idle = (_read_worked() - began) / (time.perf_counter() - since)
        began, since = _read_worked(), time.perf_counter()
        await add(1000 * number, _INGESTED)
        whole = _read_worked() - began
        waiting = idle * (time.perf_counter() - since)
        rounds.append((alone, whole - waiting, waiting))
    alone, adding, waiting = (statistics.median(column) for column in zip(*rounds, strict=True))
    beyond = statistics.median(adding / alone - 1 for alone, adding, _ in rounds)
    return {
        "the embedder alone": alone,
        "all, without what a server that waits costs": adding,
        "what a server that waits costs in that time": waiting,
        "beyond": beyond,
        "chunks": sum(map(len, contents)),
    }


async def _read_contents(harness: ToolHarness) -> list[list[str]]:
    """Returns what was embedded of each document."""
    database = next(iter(harness.services.regions.values())).database
    async with database.reading() as connection:
        rows = (await connection.execute(chunks.select().order_by(chunks.c.document_id, chunks.c.position))).all()
    by_document: dict[str, list[str]] = {}
    for row in rows:
        by_document.setdefault(row.document_id, []).append("\n".join((*row.headings, row.text)))
    return list(by_document.values())


def measure_embedder() -> float:
    """Seconds of the processor for texts as long as usual chunks, in the batches of a document."""
    embedder = load_best()
    words = " ".join(json.loads(_PASSAGES.read_text())["passages"].values()).split()
    texts = []
    for number in range(_EMBEDDED):
        own = words[number * 13 % 1000 :]
        length = next(count for count in range(60, len(own)) if embedder.count(" ".join(own[:count])) >= _TOKENS)
        texts.append(" ".join(own[:length]))
    began = _read_worked()
    for start in range(0, len(texts), 32):
        embedder.embed(texts[start : start + 32])
    return _read_worked() - began


async def _wait_until_ready(harness: ToolHarness, owner: Account) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            result = await harness.call("rag_collections_get", owner, app_id=_APP, name="bench")
            counts = result["documentCounts"]
            assert not counts["failed"]
            if counts["ready"] == counts["total"]:
                return
            # Seldom: it works in the process that is measured.
            await asyncio.sleep(1)


def _read_worked() -> float:
    """Seconds of the processor of this process and those that it has started, the living ones included."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process that is gone has been counted already.
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return seconds


async def _measure_quality(harness: ToolHarness, owner: Account) -> dict[str, Any]:
    """nDCG and recall among the first ten, for each way to search."""
    payload = json.loads(_PASSAGES.read_text())
    names: dict[str, str] = {}
    for name, text in payload["passages"].items():
        added_result = await harness.call("rag_ingest", owner, app_id=_APP, name="bench", text=text)
        names[added_result["documentId"]] = name
    await _wait_until_ready(harness, owner)
    quality: dict[str, Any] = {"questions": len(payload["questions"])}
    for way in _WAYS:
        rankings = []
        for question, _ in payload["questions"]:
            arguments = {"query": question, "mode": way, "topK": _FIRST}
            result = await harness.call("rag_query", owner, app_id=_APP, name="bench", **arguments)
            rankings.append([names[chunk["documentId"]] for chunk in result["chunks"]])
        quality[way] = _judge(rankings, payload["questions"])
    return quality


def _judge(rankings: list[list[str]], questions: list[Any]) -> tuple[float, float]:
    """Returns the means of nDCG and recall."""
    pairs = [
        (list(dict.fromkeys(ranking)), relevant) for ranking, (_, relevant) in zip(rankings, questions, strict=True)
    ]
    ndcg = statistics.mean(measure_ndcg(ranking, relevant, _FIRST) for ranking, relevant in pairs)
    return ndcg, statistics.mean(measure_recall(ranking, relevant) for ranking, relevant in pairs)


def _run_peer() -> tuple[float, float] | None:
    """LlamaIndex with the same texts; None where it cannot be installed."""
    try:
        python = install_peer(LLAMA_INDEX)
    except subprocess.CalledProcessError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        settings = {"BAOBAB_BOOTSTRAP_KEY": _KEY, "BAOBAB_PLAN": "enterprise"}
        with run_server(Path(folder) / "data", settings=settings) as server:
            command = [str(python), str(_PEER), server.address, _KEY, str(_PASSAGES), str(_FIRST)]
            process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(process.stderr)
    return _judge(json.loads(process.stdout.splitlines()[-1]), json.loads(_PASSAGES.read_text())["questions"])
