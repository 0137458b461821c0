"""Translation: LiteLLM calls a provider whose wire is its own, and answers in OpenAI's."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import cache, partial
from json import JSONDecodeError
from types import ModuleType
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.errors import UpstreamFailed, UpstreamMalformed, UpstreamTimeout
from baobab.runtime.gateway.events import DONE, encode_event
from baobab.runtime.gateway.litellm_import import load_litellm
from baobab.runtime.gateway.parameters import DROP, ask_without_refused, is_default, is_parameter
from baobab.runtime.gateway.provider_stream import ProviderStream
from baobab.runtime.gateway.refusal import build_refusal
from baobab.runtime.gateway.retry_timeouts import DEFAULT_TIMEOUTS
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires.fields import field_error, list_objects
from baobab.tools.core.errors import BaobabError

_CONNECT_SECONDS = 10.0
# What LiteLLM takes by name; it passes on the rest only where it is told that it is extra.
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
_WORD = re.compile(r"[a-z_]+")
_OWN_FIELDS = frozenset(("model", "stream", "stream_options", DROP))
# What a provider is not told. Of OpenAI's own words Anthropic knows none, and refuses what it does not know.
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
            # Another model than the one that is charged, or another account.
            "billing_policy",
            "fallback_credit_token",
            "fallbacks",
            "thread",
            "user_profile_id",
            "workspace_id",
        )
    ),
    # LiteLLM lets these take the place of the conversation, its limits and what else it has written.
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
    """A chat completion in one piece."""
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
    """The events of a chat completion whose head is there. It has begun with its first event."""
    library = await load_litellm()
    given_options = body.get("stream_options")
    wanted = isinstance(given_options, dict) and given_options.get("include_usage") is True
    options = {"stream": True, "stream_options": {"include_usage": True}}
    retry_timeouts = upstream.retry_timeouts or DEFAULT_TIMEOUTS
    deadline = asyncio.get_running_loop().time() + retry_timeouts.total
    # The library has one bound of silence for a connection.
    silence = min(max(retry_timeouts.first, retry_timeouts.between), retry_timeouts.total)

    async def open_stream(**given: Any) -> ProviderStream:
        chunks = ProviderStream(library, await library.acompletion(**given), upstream.provider)
        await chunks.open_stream()
        return chunks

    chunks = await _call_library(library, open_stream, upstream, body, meter, silence, **options)
    return _stream_events(library, chunks, meter, deadline, wanted=wanted)


async def _stream_events(
    library: Any, chunks: ProviderStream, meter: UsageMeter, deadline: float, *, wanted: bool
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
            # Whoever hangs up behind the end has said all.
            if not chunks.has_ended(has_reason=bool(answer.reasons)):
                raise
        if not chunks.has_ended(has_reason=bool(answer.reasons)):
            raise UpstreamMalformed
        meter.has_begun = True
        meter.count_usage(answer.usage)
        for payload in answer.final_chunks(with_usage=wanted):
            yield encode_event(to_json(payload))
        meter.has_ended = True
        yield DONE
    except UpstreamFailed:
        raise
    except Exception as exc:  # noqa: BLE001 - as below: of many kinds
        failure = translate_error(library, exc)
        raise failure from failure.__cause__ or exc
    finally:
        await chunks.aclose()


class _ChunkReader:
    """The chunks of one stream as OpenAI words them: one id, the role first, the reasons and the usage last."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        """Why each of the choices ends."""
        self.usage: dict[str, Any] | None = None
        """What was used, by the last word on it."""
        self._shared: dict[str, Any] = {}
        self._begun_choices: set[int] = set()

    def read_chunk(self, chunk: dict[str, Any]) -> dict[str, Any] | None:
        """What is passed on of a chunk now; None for nothing."""
        self.usage = chunk.pop("usage", None) or self.usage
        choices = [choice for choice in chunk.get("choices", ()) if self._prepare_choice(choice)]
        if not self._shared:
            self._shared = {name: chunk.get(name) for name in ("id", "created", "model", "object")}
        if not choices:
            return None
        further = {name: value for name, value in chunk.items() if value not in ([], {})}
        return {**further, **self._shared, "choices": choices}

    def final_chunks(self, *, with_usage: bool) -> Iterator[dict[str, Any]]:
        """What comes behind all the rest."""
        for index, reason in sorted(self.reasons.items()):
            yield {**self._shared, "choices": [{"index": index, "delta": {}, "finish_reason": reason}]}
        if with_usage and self.usage is not None:
            yield {**self._shared, "choices": [], "usage": self.usage}

    def _prepare_choice(self, choice: dict[str, Any]) -> bool:
        """Whether the choice says anything beside why it ends; it is made ready."""
        index, delta = choice.get("index", 0), choice.get("delta") or {}
        if reason := choice.get("finish_reason"):
            self.reasons[index] = reason
        # Null is said on this wire, and readers count on it.
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
    """What the library makes of a request; its errors in our words. Parameters that may be left out are.

    silence: seconds in which the provider may say nothing.
    """
    # The library refuses by itself what it knows a provider not to take, be it said or left unsaid.
    plain = {name: value for name, value in body.items() if not (is_parameter(name) and is_default(name, value))}
    _refuse_untranslatable(plain, upstream)
    options["timeout"] = library.httpx.Timeout(silence, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS)
    return await ask_without_refused(plain, meter, partial(_post_request, library, call, upstream, options))


def _refuse_untranslatable(body: Mapping[str, Any], upstream: Upstream) -> None:
    """RequestRefused for what the library would leave out without a word, or stumble over."""
    for name in ("functions", "function_call"):
        if name in body:
            raise field_error(name, "is not known to this model: send `tools` and `tool_choice`")
    # Its own chat models are relayed; the others are asked for a response, of which there is one.
    is_openai = upstream.provider == "openai"
    if is_openai and "n" in body:
        raise field_error("n", "is 1 for this model: send the request several times")
    for at, tool in list_objects(body, "tools"):
        if tool.get("type") == "custom" and not is_openai:
            raise field_error(f"{at}.type", "is `function` for this model: tools that take free text are OpenAI's")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "custom":
        raise field_error("tool_choice.type", "is `function` for this model")


async def _post_request(
    library: Any, call: Any, upstream: Upstream, options: Mapping[str, Any], body: Mapping[str, Any]
) -> Any:
    given = {name: value for name, value in body.items() if name in _KNOWN_PARAMETERS}
    withheld = _KNOWN_PARAMETERS | _OWN_FIELDS | _WITHHELD_FIELDS.get(upstream.provider, frozenset())
    further = {name: value for name, value in body.items() if name not in withheld}
    if further and upstream.provider == "anthropic":
        given["client"] = build_adding_client(library, further)
    elif further:
        given["extra_body"] = further
    if upstream.api_base:
        given["api_base"] = upstream.api_base
    try:
        return await call(
            model=f"{upstream.provider}/{upstream.model}",
            api_key=upstream.api_key,
            num_retries=0,
            max_retries=0,
            **given,
            **options,
        )
    except Exception as exc:  # noqa: BLE001 - the library raises what its providers do, of many kinds
        failure = translate_error(library, exc, body, upstream)
        raise failure from failure.__cause__ or exc


async def _call_with_timeout(
    library: Any, call: Any, upstream: Upstream, body: Mapping[str, Any], meter: UsageMeter
) -> Any:
    retry_timeouts = upstream.retry_timeouts or DEFAULT_TIMEOUTS
    try:
        # Silence ends in time by itself; this is for those who trickle. The library does not take being cancelled well.
        async with asyncio.timeout(retry_timeouts.total + _CONNECT_SECONDS):
            return await _call_library(library, call, upstream, body, meter, retry_timeouts.total)
    except TimeoutError as exc:
        raise UpstreamTimeout from exc


def translate_error(
    library: Any, exc: Exception, body: Mapping[str, Any] | None = None, upstream: Upstream | None = None
) -> BaobabError:
    """What the library raises, in our words."""
    kinds = library.exceptions
    if isinstance(exc, kinds.UnsupportedParamsError):
        return _build_unsupported_error(str(exc), body or {}, upstream)
    http, causes = library.httpx, tuple(_list_causes(exc))
    broken = next((cause for cause in causes if isinstance(cause, http.TransportError)), None)
    if isinstance(broken, (http.ConnectError, http.ConnectTimeout, http.PoolTimeout)):
        return UpstreamFailed("The model's provider cannot be reached.").mark_unbilled()
    if broken is not None:
        timed_out = isinstance(broken, http.TimeoutException)
        return UpstreamTimeout() if timed_out else UpstreamFailed("The model's provider broke off.")
    if any(isinstance(cause, JSONDecodeError) for cause in causes) and not any(
        isinstance(cause, http.HTTPStatusError) for cause in causes
    ):
        return UpstreamMalformed()
    status = getattr(exc, "status_code", None)
    if isinstance(status, int):
        headers = getattr(exc, "litellm_response_headers", None) or {}
        error = _parse_provider_error(str(exc))
        if isinstance(exc, kinds.ContextWindowExceededError):
            error["code"] = "context_length_exceeded"
        elif isinstance(exc, kinds.ContentPolicyViolationError):
            error.setdefault("code", "content_policy_violation")
        return build_refusal(status, to_json({"error": error}), headers, body, upstream)
    malformed = isinstance(exc, (TypeError, LookupError, ValueError, AttributeError))
    return UpstreamMalformed() if malformed else UpstreamFailed()


def _build_unsupported_error(words: str, body: Mapping[str, Any], upstream: Upstream | None) -> BaobabError:
    """What the library has refused by itself, without the provider: by the first parameter that it names."""
    parameters = [name for name in _WORD.findall(words) if is_parameter(name) and name in body]
    error = {
        "message": words.partition("litellm.UnsupportedParamsError: ")[2] or words,
        "type": "unsupported_parameter",
    }
    if parameters:
        error["param"] = parameters[0]
    return build_refusal(400, to_json({"error": error}), None, body, upstream)


def _parse_provider_error(words: str) -> dict[str, Any]:
    """What the provider has said, out of what the library makes of it: a text with JSON at its end."""
    begins = words.find("{")
    if begins >= 0:
        try:
            payload = from_json(words[begins:], allow_partial=True)
        except ValueError:
            payload = None
        error = payload.get("error") if isinstance(payload, dict) else None
        if isinstance(error, dict):
            return dict(error)
    return {"message": words.rpartition("Exception - ")[2]}


def _list_causes(exc: BaseException) -> Iterator[BaseException]:
    """An exception, and what it was raised for: the library gives the status 500 to whatever has none."""
    cause: BaseException | None = exc
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def build_adding_client(library: ModuleType, fields: Mapping[str, Any]) -> Any:
    """Builds a client for Anthropic that adds `fields` to its one request; fields that are already there stay."""
    return _adding_client_class(library)(fields)


@cache
def _adding_client_class(library: ModuleType) -> type[Any]:
    handlers: Any = library.llms.custom_httpx.http_handler

    class Adding(handlers.AsyncHTTPHandler):  # type: ignore[misc]  # it is loaded late
        def __init__(self, fields: Mapping[str, Any]) -> None:
            # The connections are shared by all calls.
            self._shared = handlers.get_async_httpx_client(llm_provider=library.LlmProviders.ANTHROPIC)
            self._fields = fields

        async def post(self, url: str, *, data: Any = None, json: Any = None, **options: Any) -> Any:
            body = {**self._fields, **(from_json(data) if json is None else json)}
            return await self._shared.post(url, data=to_json(body), **options)

    return Adding
