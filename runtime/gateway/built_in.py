"""The built-in models, which need no provider."""

import asyncio
import struct
from array import array
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pydantic_core import to_json

from baobab.runtime.gateway.builtin import echo, embeddings
from baobab.runtime.gateway.builtin.chat_request import CONTEXT_WINDOW
from baobab.runtime.gateway.builtin.threads import THREADS
from baobab.runtime.gateway.errors import ContextTooLong, RequestRefused
from baobab.runtime.gateway.events import DONE, encode_event
from baobab.runtime.gateway.media import built_in as media
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.work_budget import OverBudget
from baobab.storage.clock import Clock, Ids

T = TypeVar("T")

BUILT_IN = "baobab"
_FREE = Price(0, 0)
# The most that one request may give the built-in embeddings: about twenty seconds' work.
_MOST_TEXTS, _MOST_CHARACTERS = 2048, 200_000
_TOGETHER = 32
"""The number of chunks of a stream after which the event loop runs other tasks."""


def list_models() -> list[Model]:
    """Returns the models that need no provider."""
    chat = Model(
        id=echo.MODEL,
        name="Baobab echo (built in, for trying things out)",
        modality="chat",
        price=_FREE,
        context_window=CONTEXT_WINDOW,
        max_output=None,
        litellm="",
        provider=BUILT_IN,
        features=frozenset(("tools", "parallel_tools", "json_schema", "streaming")),
    )
    embedding = Model(
        id=embeddings.list_installed()[0],
        name="Baobab embeddings (built in)",
        modality="embedding",
        price=_FREE,
        context_window=None,
        max_output=None,
        litellm="",
        provider=BUILT_IN,
        features=frozenset(),
    )
    return [chat, embedding, *media.list_models()]


class BuiltInModels:
    """Answers calls to the built-in models."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids

    async def complete_chat(self, body: Mapping[str, Any], meter: UsageMeter) -> dict[str, Any]:
        with _TranslateErrors():
            answer = await _run_bounded(
                partial(echo.complete_chat, body, completion_id=self._new_id(), created=int(self._clock.time()))
            )
        meter.has_begun = True
        meter.count_usage(answer["usage"])
        return answer

    async def stream_chat(self, body: Mapping[str, Any], meter: UsageMeter) -> AsyncGenerator[bytes, None]:
        stream_options = body.get("stream_options")
        wants_usage = isinstance(stream_options, dict) and stream_options.get("include_usage") is True
        metered_body = {
            **body,
            "stream_options": {**(stream_options if isinstance(stream_options, dict) else {}), "include_usage": True},
        }
        with _TranslateErrors():
            chunks = await _run_bounded(
                partial(echo.stream_chat, metered_body, completion_id=self._new_id(), created=int(self._clock.time()))
            )
        meter.has_begun = True

        async def pieces() -> AsyncGenerator[bytes, None]:
            for number, chunk in enumerate(chunks, 1):
                usage = chunk.pop("usage", None) if not wants_usage else chunk.get("usage")
                meter.count_usage(usage)
                if chunk["choices"] or wants_usage:
                    yield encode_event(to_json(chunk))
                if number % _TOGETHER == 0:
                    await asyncio.sleep(0)
            yield DONE

        return pieces()

    async def embed_texts(self, model: Model, body: Mapping[str, Any], meter: UsageMeter) -> dict[str, Any]:
        inputs = body["input"]
        texts = [inputs] if isinstance(inputs, str) else inputs
        if not all(isinstance(text, str) for text in texts):
            raise RequestRefused("The built-in embeddings take texts, not tokens.", details={"param": "input"})
        if not texts:
            raise RequestRefused("There is no text to embed.", details={"param": "input"})
        if len(texts) > _MOST_TEXTS or sum(map(len, texts)) > _MOST_CHARACTERS:
            raise RequestRefused(
                f"The built-in embeddings take at most {_MOST_TEXTS} texts, of {_MOST_CHARACTERS} characters in all.",
                details={"param": "input"},
            )
        as_text = body.get("encoding_format") == "base64"
        data: list[dict[str, Any]] = []
        tokens = 0
        with THREADS.reserve_place():
            embedder = await THREADS.run_work(partial(embeddings.load_embedder, model.id))
            if body.get("dimensions") not in (None, embedder.dimensions):
                raise RequestRefused(
                    f"The vectors of `{model.id}` have {embedder.dimensions} dimensions, and no other number.",
                    details={"param": "dimensions"},
                )
            # Other requests run between the pieces, and work for a cancelled call stops.
            for piece in embeddings.split_work(texts):
                vectors, piece_tokens = await THREADS.run_work(partial(_embed_piece, embedder, piece, as_text=as_text))
                data += (
                    {"object": "embedding", "index": index, "embedding": vector}
                    for index, vector in enumerate(vectors, len(data))
                )
                tokens += piece_tokens
        meter.has_begun = True
        meter.count_usage({"prompt_tokens": tokens})
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": model.id, "usage": usage}

    def _new_id(self) -> str:
        return "chatcmpl-" + self._ids.hex(24)


class _TranslateErrors:
    """Turns errors of the built-in model into the gateway's own."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, echo.ContextTooLong):
            raise ContextTooLong(details={"param": error.param}) from error
        if isinstance(error, OverBudget):
            raise RequestRefused(
                "The request asks for more work than the built-in model does: its schemas, tools or commands are too "
                "large or too intricate. Ask for less, or another model."
            ) from error
        if isinstance(error, echo.BadParameter):
            raise RequestRefused(str(error), details={"param": error.param}) from error


async def _run_bounded(work: Callable[..., T]) -> T:
    """Runs the built-in model's work: small work at once; larger work starts again in the model's thread."""
    try:
        return work(budget=echo.small_budget())
    except OverBudget:
        with THREADS.reserve_place():
            return await THREADS.run_work(partial(work, budget=echo.full_budget()))


def _embed_piece(embedder: embeddings.Embedder, texts: Sequence[str], *, as_text: bool) -> tuple[list[Any], int]:
    """Returns the vectors of the texts in the wire format, and the texts' number of tokens."""
    vectors, tokens = embedder.embed_counted(texts)
    return [_encode_vector(vector) if as_text else list(vector) for vector in vectors], tokens


def _encode_vector(vector: "array[float]") -> str:
    """Encodes a vector as base64 of little-endian 32-bit floats, which OpenAI's clients read."""
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
