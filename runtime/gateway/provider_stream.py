"""Reads a stream of LiteLLM's directly from its parser of the provider's events, without the library's wrapper.

The wrapper rebuilds every chunk, so that an event costs ten times as much as with the parser alone.
"""

import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator
from types import ModuleType
from typing import Any

from pydantic_core import from_json, to_json

_USAGE_OF_GOOGLE = '"usageMetadata"'
_REASON_OF_GOOGLE = re.compile(r'"(?:finishReason|blockReason)"\s*:')


class ProviderStream:
    """The chunks of one stream, and whether its provider has sent a finish reason.

    wrapper: the library's answer for a stream. Streams of providers whose parsers do not make chunks are read from it.
    """

    def __init__(self, library: ModuleType, wrapper: Any, provider: str) -> None:
        self._library = library
        self._wrapper = wrapper
        self._parser: Any = None
        self._lines: AsyncGenerator[str, None] | None = None
        self._has_google_reason = False
        self._is_google = provider == "gemini"
        self._provider = provider

    async def open_stream(self) -> None:
        """Waits until the provider has begun to answer; raises the library's errors."""
        if self._wrapper.completion_stream is None:
            try:
                await self._wrapper.fetch_stream()
            except Exception as exc:
                raise self._translate_error(exc) from exc
        stream = self._wrapper.completion_stream
        if isinstance(stream, _parser_types(self._library)):
            self._parser, self._lines = stream, stream.streaming_response
            if self._is_google:
                # Google's parser gives every chunk a finish reason.
                stream.streaming_response = self._watch_lines(stream.streaming_response)

    def has_ended(self, *, has_reason: bool) -> bool:
        """Returns whether the provider has sent a finish reason. has_reason: whether a chunk has had one."""
        if self._is_google:
            return self._has_google_reason
        if self._parser is not None:
            return has_reason
        # The wrapper invents a finish reason if there is none.
        return bool(self._wrapper.received_finish_reason or self._wrapper.intermittent_finish_reason)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yields the library's chunks as they arrive."""
        if self._parser is None:
            async for chunk in self._wrapper:
                yield chunk
            return
        chunks = aiter(self._parser)
        while True:
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except Exception as exc:
                raise self._translate_error(exc) from exc
            # An event without a meaning of its own gives None or a dict instead of a chunk.
            if chunk is not None and not isinstance(chunk, dict):
                yield chunk

    async def aclose(self) -> None:
        if self._lines is not None:
            await self._lines.aclose()
        await self._wrapper.aclose()

    def _translate_error(self, exc: Exception) -> Exception:
        try:
            translated_error: Exception = self._library.exception_type(
                model=self._wrapper.model,
                custom_llm_provider=self._provider,
                original_exception=exc,
                completion_kwargs={},
                extra_kwargs={},
            )
        except Exception as raised:  # noqa: BLE001 - the function raises its result
            translated_error = raised
        return translated_error

    async def _watch_lines(self, lines: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        is_counted = False
        async with contextlib.aclosing(lines):
            async for line in lines:
                if not self._has_google_reason and _REASON_OF_GOOGLE.search(line):
                    self._has_google_reason = _gives_reason(line)
                if not self._has_google_reason and _USAGE_OF_GOOGLE in line:
                    # Every event has the usage; only the first one and the last ones tell something new.
                    yield _remove_usage(line) if is_counted else line
                    is_counted = True
                else:
                    yield line


def _parser_types(library: ModuleType) -> tuple[type[Any], ...]:
    """Returns the parsers whose chunks are of the library's own type."""
    llms = library.llms
    return (
        llms.anthropic.chat.handler.ModelResponseIterator,
        llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini.ModelResponseIterator,
        llms.openai.chat.gpt_transformation.OpenAIChatCompletionStreamingHandler,
    )


def _gives_reason(line: str) -> bool:
    """Returns whether the line has a finish reason; the same words may also be in the model's text."""
    try:
        event = from_json(line.removeprefix("data:"))
    except ValueError:
        return True
    if not isinstance(event, dict):
        return False
    candidates, feedback = event.get("candidates"), event.get("promptFeedback")
    candidate_list = candidates if isinstance(candidates, list) else []
    has_finish_reason = any(
        isinstance(candidate, dict) and candidate.get("finishReason") for candidate in candidate_list
    )
    return has_finish_reason or (isinstance(feedback, dict) and bool(feedback.get("blockReason")))


def _remove_usage(line: str) -> str:
    try:
        event = from_json(line.removeprefix("data:"))
    except ValueError:
        return line
    if not isinstance(event, dict):
        return line
    return "data: " + to_json({name: value for name, value in event.items() if name != "usageMetadata"}).decode()
