"""Whether a provider has said why its answer ends: LiteLLM makes up a reason where a stream stops without one."""

import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from pydantic_core import from_json

_GOOGLES_OWN = re.compile(r'"(?:finishReason|blockReason)"\s*:')


class Ends:
    """What is known of the end of one stream, while it is read.

    chunks: the library's. Google's it gives a reason each, so there it is looked for in what comes, line by line.
    """

    def __init__(self, chunks: Any, provider: str) -> None:
        self._chunks = chunks
        self._heard: bool | None = None
        if provider == "gemini":
            self._heard = False
            chunks.make_call = self._asking(chunks.make_call)

    def __bool__(self) -> bool:
        if self._heard is not None:
            return self._heard
        return bool(self._chunks.received_finish_reason or self._chunks.intermittent_finish_reason)

    def _asking(self, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The call that the library makes when the first chunk is wanted, with somebody listening to its answer."""

        async def asked(**options: Any) -> Any:
            source = await ask(**options)
            source.streaming_response = self._listening(source.streaming_response)
            return source

        return asked

    async def _listening(self, lines: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        async with contextlib.aclosing(lines):
            async for line in lines:
                if _GOOGLES_OWN.search(line):
                    self._heard = self._heard or _is_last(line)
                yield line


def _is_last(line: str) -> bool:
    """Whether the line says why the answer ends; its words may also be in what the model says."""
    try:
        told = from_json(line.removeprefix("data:"))
    except ValueError:
        return True
    if not isinstance(told, dict):
        return False
    candidates, feedback = told.get("candidates"), told.get("promptFeedback")
    found = candidates if isinstance(candidates, list) else []
    ended = any(isinstance(candidate, dict) and candidate.get("finishReason") for candidate in found)
    return ended or (isinstance(feedback, dict) and bool(feedback.get("blockReason")))
