"""Calls providers through LiteLLM, which translates between OpenAI's wire format and theirs."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import cache, partial
from types import ModuleType
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.completion_events import stream_completion
from baobab.runtime.gateway.errors import RequestRefused, UpstreamFailed, UpstreamMalformed, UpstreamTimeout
from baobab.runtime.gateway.events import DONE, encode_event
from baobab.runtime.gateway.library_errors import may_be_local, translate_error
from baobab.runtime.gateway.litellm_import import load_litellm
from baobab.runtime.gateway.parameters import DROP, ask_without_refused, is_default, is_parameter
from baobab.runtime.gateway.provider_stream import ProviderStream
from baobab.runtime.gateway.retry_timeouts import DEFAULT_TIMEOUTS
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires.chat_fields import find_malformed_field
from baobab.runtime.gateway.wires.fields import field_error, list_objects

_CONNECT_SECONDS = 10.0
# The parameters that LiteLLM takes by name; it passes on others only in `extra_body`.
_KNOWN_PARAMETERS = frozenset(
    (
        "messages",
        "temperature",
        "top_p",
        "n",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "user",
        "seed",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "logprobs",
        "top_logprobs",
        "reasoning_effort",
        "thinking",
        "top_k",
        "input",
        "dimensions",
        "encoding_format",
    )
)
_OWN_FIELDS = frozenset(("model", "stream", "stream_options", DROP))
# Fields that are not sent to a provider. Anthropic refuses the fields that only OpenAI has.
_WITHHELD_FIELDS: Mapping[str, frozenset[str]] = {
    "anthropic": frozenset(
        (
            "audio",
            "betas",
            "extra_body",
            "function_call",
            "functions",
            "metadata",
            "modalities",
            "moderation",
            "prediction",
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
            "safety_identifier",
            "service_tier",
            "store",
            "verbosity",
            "web_search_options",
            # These could choose another model than the one that is charged, or another account.
            "billing_policy",
            "fallback_credit_token",
            "fallbacks",
            "thread",
            "user_profile_id",
            "workspace_id",
        )
    ),
    # With these, LiteLLM would replace the conversation, its limits and other fields.
    "gemini": frozenset(
        (
            "cachedContent",
            "cached_content",
            "contents",
            "generationConfig",
            "generation_config",
            "systemInstruction",
            "system_instruction",
            "toolConfig",
            "tool_config",
        )
    ),
}


async def complete_chat(upstream: Upstream, body: Mapping[str, Any], meter: UsageMeter) -> dict[str, Any]:
    """Returns a chat completion in one piece."""
    library = await load_litellm()
    answer = await _call_with_timeout(library, library.acompletion, upstream, body, meter)
    meter.has_begun = True
    completion: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)
    meter.count_usage(completion.get("usage"))
    for choice in completion.get("choices", ()):
        choice["message"].setdefault("content", None)
    return completion


async def embed_texts(upstream: Upstream, body: Mapping[str, Any], meter: UsageMeter) -> dict[str, Any]:
    library = await load_litellm()
    answer = await _call_with_timeout(library, library.aembedding, upstream, body, meter)
    meter.has_begun = True
    vectors: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)
    meter.count_usage(vectors.get("usage"))
    return vectors


async def stream_chat(upstream: Upstream, body: Mapping[str, Any], meter: UsageMeter) -> AsyncGenerator[bytes, None]:
    """Returns the events of a chat completion whose headers have arrived. It has begun with its first event."""
    library = await load_litellm()
    given_options = body.get("stream_options")
    with_usage = isinstance(given_options, dict) and given_options.get("include_usage") is True
    if not _streams_itself(library, upstream):
        # LiteLLM would make a stream of the answer, with every argument twice.
        completion = await complete_chat(upstream, body, meter)
        return stream_completion(completion, meter, with_usage=with_usage)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    retry_timeouts = upstream.retry_timeouts or DEFAULT_TIMEOUTS
    deadline = asyncio.get_running_loop().time() + retry_timeouts.total
    # The library has a single limit for a connection's silence.
    silence = min(max(retry_timeouts.first, retry_timeouts.between), retry_timeouts.total)

    async def open_stream(**arguments: Any) -> ProviderStream:
        chunks = ProviderStream(library, await library.acompletion(**arguments), upstream.provider)
        await chunks.open_stream()
        return chunks

    chunks = await _call_library(library, open_stream, upstream, body, meter, silence, **options)
    return _stream_events(library, chunks, meter, deadline, with_usage=with_usage)


def _streams_itself(library: Any, upstream: Upstream) -> bool:
    """Returns whether the provider streams the model's answers."""
    is_openai = upstream.provider == "openai"
    return not is_openai or bool(library.utils.supports_native_streaming(upstream.model, upstream.provider))


async def _stream_events(
    library: Any, chunks: ProviderStream, meter: UsageMeter, deadline: float, *, with_usage: bool
) -> AsyncGenerator[bytes, None]:
    answer, now, last_usage = _ChunkReader(), asyncio.get_running_loop().time, None
    try:
        try:
            async for chunk in chunks:
                if now() > deadline:
                    raise UpstreamTimeout
                payload = answer.read_chunk(chunk.model_dump(mode="json", exclude_none=True))
                if payload is not None:
                    meter.has_begun = True
                    yield encode_event(to_json(payload))
                if meter.has_begun and answer.usage is not last_usage:
                    last_usage = answer.usage
                    meter.count_prompt(last_usage)
        except (library.httpx.ReadError, library.httpx.RemoteProtocolError, library.APIConnectionError):
            # A connection that breaks after the end has delivered everything.
            if not chunks.has_ended(has_reason=bool(answer.reasons)):
                raise
        if not chunks.has_ended(has_reason=bool(answer.reasons)):
            raise UpstreamMalformed
        meter.has_begun = True
        meter.count_usage(answer.usage)
        for payload in answer.final_chunks(with_usage=with_usage):
            yield encode_event(to_json(payload))
        meter.has_ended = True
        yield DONE
    except UpstreamFailed:
        raise
    except Exception as exc:  # noqa: BLE001 - the library raises its providers' errors, of many kinds
        failure = translate_error(library, exc)
        raise failure from failure.__cause__ or exc
    finally:
        await chunks.aclose()


class _ChunkReader:
    """Brings the chunks of a stream into OpenAI's form: one id, the role first, finish reasons and usage last."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        """The finish reason of each choice, by its index."""
        self.usage: dict[str, Any] | None = None
        """The last usage that the stream has reported."""
        self._shared_fields: dict[str, Any] = {}
        self._begun_choices: set[int] = set()

    def read_chunk(self, chunk: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the part of a chunk that is passed on now; None if there is none."""
        self.usage = chunk.pop("usage", None) or self.usage
        choices = [choice for choice in chunk.get("choices", ()) if self._prepare_choice(choice)]
        if not self._shared_fields:
            self._shared_fields = {name: chunk.get(name) for name in ("id", "created", "model", "object")}
        if not choices:
            return None
        other_fields = {name: value for name, value in chunk.items() if value not in ([], {})}
        return {**other_fields, **self._shared_fields, "choices": choices}

    def final_chunks(self, *, with_usage: bool) -> Iterator[dict[str, Any]]:
        """Yields the last chunks: the finish reasons, and the usage."""
        for index, reason in sorted(self.reasons.items()):
            yield {**self._shared_fields, "choices": [{"index": index, "delta": {}, "finish_reason": reason}]}
        if with_usage and self.usage is not None:
            yield {**self._shared_fields, "choices": [], "usage": self.usage}

    def _prepare_choice(self, choice: dict[str, Any]) -> bool:
        """Prepares a choice for passing on. Returns whether it has anything but a finish reason."""
        index, delta = choice.get("index", 0), choice.get("delta") or {}
        if reason := choice.get("finish_reason"):
            self.reasons[index] = reason
        # Readers of this wire format expect an explicit null.
        choice["finish_reason"] = None
        delta.pop("role", None)
        if not delta.get("content"):
            delta.pop("content", None)
        if not delta:
            return False
        if index not in self._begun_choices:
            self._begun_choices.add(index)
            choice["delta"] = {"role": "assistant", **delta}
        return True


async def _call_library(
    library: Any,
    call: Any,
    upstream: Upstream,
    body: Mapping[str, Any],
    meter: UsageMeter,
    silence: float,
    **options: Any,
) -> Any:
    """Sends a request through the library. Leaves out refused parameters if allowed, and translates errors.

    silence: the seconds that the provider may be silent.
    """
    # The library itself refuses parameters that a provider does not take, even with their default values.
    plain_body = {name: value for name, value in body.items() if not (is_parameter(name) and is_default(name, value))}
    _refuse_untranslatable(plain_body, upstream)
    options["timeout"] = library.httpx.Timeout(silence, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS)
    return await ask_without_refused(plain_body, meter, partial(_post_request, library, call, upstream, options))


def _refuse_untranslatable(body: Mapping[str, Any], upstream: Upstream) -> None:
    """Raises RequestRefused for fields that the library would silently leave out, or fail on."""
    for name in ("functions", "function_call"):
        if name in body:
            raise field_error(name, "is not known to this model: send `tools` and `tool_choice`")
    # OpenAI's chat models are relayed; the others are called by the Responses API, which gives one answer.
    is_openai = upstream.provider == "openai"
    if is_openai and "n" in body:
        raise field_error("n", "must be 1 for this model: send the request several times")
    for at, tool in list_objects(body, "tools"):
        if tool.get("type") == "custom" and not is_openai:
            raise field_error(f"{at}.type", "must be `function` for this model: tools that take free text are OpenAI's")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "custom":
        raise field_error("tool_choice.type", "must be `function` for this model")


async def _post_request(
    library: Any, call: Any, upstream: Upstream, options: Mapping[str, Any], body: Mapping[str, Any]
) -> Any:
    arguments = {name: value for name, value in body.items() if name in _KNOWN_PARAMETERS}
    withheld_names = _KNOWN_PARAMETERS | _OWN_FIELDS | _WITHHELD_FIELDS.get(upstream.provider, frozenset())
    extra_fields = {name: value for name, value in body.items() if name not in withheld_names}
    if extra_fields and upstream.provider == "anthropic":
        arguments["client"] = build_adding_client(library, extra_fields)
    elif extra_fields:
        arguments["extra_body"] = extra_fields
    if upstream.api_base:
        arguments["api_base"] = upstream.api_base
    handover = _Handover()
    try:
        return await call(
            model=f"{upstream.provider}/{upstream.model}",
            api_key=upstream.api_key,
            num_retries=0,
            max_retries=0,
            logger_fn=handover.notice,
            **arguments,
            **options,
        )
    except Exception as exc:  # noqa: BLE001 - the library raises its providers' errors, of many kinds
        is_local = not handover.has_begun and may_be_local(library, exc)
        malformed_field = find_malformed_field(body) if is_local else None
        failure = malformed_field or translate_error(library, exc, body, upstream)
        if handover.has_begun and isinstance(failure, RequestRefused) and may_be_local(library, exc):
            # The provider has not refused the request: the library could not read its answer.
            failure = UpstreamMalformed()
        raise failure from failure.__cause__ or exc


class _Handover:
    """Notices when the library has translated a request and is about to send it."""

    def __init__(self) -> None:
        self.has_begun = False

    def notice(self, event: Mapping[str, Any]) -> None:
        self.has_begun = self.has_begun or event.get("log_event_type") == "pre_api_call"


async def _call_with_timeout(
    library: Any, call: Any, upstream: Upstream, body: Mapping[str, Any], meter: UsageMeter
) -> Any:
    retry_timeouts = upstream.retry_timeouts or DEFAULT_TIMEOUTS
    try:
        # For providers that answer a little at a time: the library limits only silence, and handles cancellation badly.
        async with asyncio.timeout(retry_timeouts.total + _CONNECT_SECONDS):
            return await _call_library(library, call, upstream, body, meter, retry_timeouts.total)
    except TimeoutError as exc:
        raise UpstreamTimeout from exc


def build_adding_client(library: ModuleType, fields: Mapping[str, Any]) -> Any:
    """Builds a client for Anthropic that adds `fields` to its one request; fields that are already there stay.

    They cannot be arguments: LiteLLM has hundreds of its own with side effects, such as addresses and keys.
    """
    return _adding_client_class(library)(fields)


@cache
def _adding_client_class(library: ModuleType) -> type[Any]:
    handlers: Any = library.llms.custom_httpx.http_handler

    class Adding(handlers.AsyncHTTPHandler):  # type: ignore[misc]  # it is loaded late
        def __init__(self, fields: Mapping[str, Any]) -> None:
            # The connections are shared by all calls.
            self._shared_client = handlers.get_async_httpx_client(llm_provider=library.LlmProviders.ANTHROPIC)
            self._fields = fields

        async def post(self, url: str, *, data: Any = None, json: Any = None, **options: Any) -> Any:
            body = {**self._fields, **(from_json(data) if json is None else json)}
            return await self._shared_client.post(url, data=to_json(body), **options)

    return Adding
