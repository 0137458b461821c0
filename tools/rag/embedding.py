"""Vectors of texts, made by the app's models (`ai_embed`), of unit length and in the bytes that rows hold."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from baobab.runtime.late_import import LateImport
from baobab.storage.vectors.numpy_import import import_numpy
from baobab.tools.core import Caller, Unavailable
from baobab.tools.core.call import ToolRunner
from baobab.tools.core.context import RequestContext


def _import_matrices() -> ModuleType:
    import_numpy()
    import_module("baobab.storage.vectors.vector_file")
    return import_module("baobab.storage.vectors.matrices")


MATRICES = LateImport(_import_matrices)
"""`storage/vectors/matrices.py`, with numpy."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """vectors: little-endian 16-bit floats each, of length 1."""

    model: str
    dimensions: int
    vectors: list[bytes]


async def embed_texts(
    registry: ToolRunner,
    payer: Caller,
    context: RequestContext,
    app_id: str,
    texts: Sequence[str],
    model: str | None,
) -> Embedded:
    """Makes the vectors of some texts. model: None for the built-in one. Raises the errors of `ai_embed`."""
    arguments = {"app_id": app_id, "texts": list(texts), "model": model}
    answer, _ = await registry.run(registry.find("ai_embed"), arguments, payer, context)
    matrices = await MATRICES.get()
    try:
        rows = [row["embedding"] for row in sorted(answer["data"], key=lambda row: row["index"])]
        dimensions, vectors = await asyncio.to_thread(matrices.normalise, rows)
    except (ValueError, LookupError, TypeError) as exc:
        raise Unavailable("The model did not return vectors.") from exc
    if len(vectors) != len(texts):
        raise Unavailable("The model did not return one vector for each text.")
    return Embedded(model or answer["model"], dimensions, vectors)
