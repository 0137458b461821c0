"""A stream of LiteLLM's: the chunks that its parser makes of a provider's events, without the wrapper around it.

The wrapper takes every chunk apart and puts it together again: with it an event costs ten times what the parser does.
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
    """The chunks of one stream, and whether its provider has said why the answer ends.

    wrapper: what the library gives back for a stream. Some providers' parsers make other things than chunks: those are
    read through it.
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
        """Returns when the provider has begun to answer; raises what the library does of a request."""
        if self._wrapper.completion_stream is None:
            try:
                await self._wrapper.fetch_stream()
            except Exception as exc:
                raise self._translate_error(exc) from exc
        found = self._wrapper.completion_stream
        if isinstance(found, _parser_types(self._library)):
            self._parser, self._lines = found, found.streaming_response
            if self._is_google:
                # Its parser gives each chunk a reason.
                found.streaming_response = self._watch_lines(found.streaming_response)

    def has_ended(self, *, has_reason: bool) -> bool:
        """Whether the provider has said why the answer ends. has_reason: whether a chunk gives a reason."""
        if self._is_google:
            return self._has_google_reason
        if self._parser is not None:
            return has_reason
        # The wrapper makes one up where there is none.
        return bool(self._wrapper.received_finish_reason or self._wrapper.intermittent_finish_reason)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """The library's chunks, as they come."""
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
            # What has no meaning of its own is none, or no chunk.
            if chunk is not None and not isinstance(chunk, dict):
                yield chunk

    async def aclose(self) -> None:
        if self._lines is not None:
            await self._lines.aclose()
        await self._wrapper.aclose()

    def _translate_error(self, exc: Exception) -> Exception:
        try:
            translated: Exception = self._library.exception_type(
                model=self._wrapper.model,
                custom_llm_provider=self._provider,
                original_exception=exc,
                completion_kwargs={},
                extra_kwargs={},
            )
        except Exception as raised:  # noqa: BLE001 - it raises what it is asked for
            translated = raised
        return translated

    async def _watch_lines(self, lines: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        is_counted = False
        async with contextlib.aclosing(lines):
            async for line in lines:
                if not self._has_google_reason and _REASON_OF_GOOGLE.search(line):
                    self._has_google_reason = _gives_reason(line)
                if not self._has_google_reason and _USAGE_OF_GOOGLE in line:
                    # Each event has it. Only the first of them tells something new, and the last ones do.
                    yield _remove_usage(line) if is_counted else line
                    is_counted = True
                else:
                    yield line


def _parser_types(library: ModuleType) -> tuple[type[Any], ...]:
    """Those parsers whose chunks are the library's own."""
    llms = library.llms
    return (
        llms.anthropic.chat.handler.ModelResponseIterator,
        llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini.ModelResponseIterator,
        llms.openai.chat.gpt_transformation.OpenAIChatCompletionStreamingHandler,
    )


def _gives_reason(line: str) -> bool:
    """Whether the line says why the answer ends; its words may also be in what the model says."""
    try:
        event = from_json(line.removeprefix("data:"))
    except ValueError:
        return True
    if not isinstance(event, dict):
        return False
    candidates, feedback = event.get("candidates"), event.get("promptFeedback")
    found = candidates if isinstance(candidates, list) else []
    ended = any(isinstance(candidate, dict) and candidate.get("finishReason") for candidate in found)
    return ended or (isinstance(feedback, dict) and bool(feedback.get("blockReason")))


def _remove_usage(line: str) -> str:
    try:
        event = from_json(line.removeprefix("data:"))
    except ValueError:
        return line
    if not isinstance(event, dict):
        return line
    return "data: " + to_json({name: value for name, value in event.items() if name != "usageMetadata"}).decode()
