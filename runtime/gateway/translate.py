"""Translation: LiteLLM calls a provider whose wire is its own, and answers in OpenAI's."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import partial
from json import JSONDecodeError
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.additions import adding
from baobab.runtime.gateway.errors import UpstreamFailed, UpstreamMalformed, UpstreamTimeout
from baobab.runtime.gateway.events import DONE, framed
from baobab.runtime.gateway.library import litellm
from baobab.runtime.gateway.outcome import Outcome
from baobab.runtime.gateway.parameters import DROP, dropping, is_default, is_parameter
from baobab.runtime.gateway.patience import USUAL
from baobab.runtime.gateway.provider_stream import ProviderStream
from baobab.runtime.gateway.refusal import refusal
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.gateway.wires.fields import objects_in, refused
from baobab.tools.core.errors import BaobabError

_CONNECT_SECONDS = 10.0
# What LiteLLM takes by name; it passes on the rest only where it is told that it is extra.
_KNOWN = frozenset(
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
_OURS = frozenset(("model", "stream", "stream_options", DROP))
# What a provider is not told. Of OpenAI's own words Anthropic knows none, and refuses what it does not know.
_WITHHELD: Mapping[str, frozenset[str]] = {
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


async def whole(upstream: Upstream, body: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """A chat completion in one piece."""
    library = await litellm()
    answer = await _whole(library, library.acompletion, upstream, body, outcome)
    outcome.begun = True
    found: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)
    outcome.count(found.get("usage"))
    for choice in found.get("choices", ()):
        choice["message"].setdefault("content", None)
    return found


async def embedding(upstream: Upstream, body: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    library = await litellm()
    answer = await _whole(library, library.aembedding, upstream, body, outcome)
    outcome.begun = True
    found: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)
    outcome.count(found.get("usage"))
    return found


async def stream(upstream: Upstream, body: Mapping[str, Any], outcome: Outcome) -> AsyncGenerator[bytes, None]:
    """The events of a chat completion whose head is there. It has begun with its first event."""
    library = await litellm()
    asked = body.get("stream_options")
    wanted = isinstance(asked, dict) and asked.get("include_usage") is True
    options = {"stream": True, "stream_options": {"include_usage": True}}
    patience = upstream.patience or USUAL
    ends = asyncio.get_running_loop().time() + patience.total
    # The library has one bound of silence for a connection.
    silence = min(max(patience.first, patience.between), patience.total)

    async def call(**given: Any) -> ProviderStream:
        chunks = ProviderStream(library, await library.acompletion(**given), upstream.provider)
        await chunks.open()
        return chunks

    chunks = await _asked(library, call, upstream, body, outcome, silence, **options)
    return _passed_on(library, chunks, outcome, ends, wanted=wanted)


async def _passed_on(
    library: Any, chunks: ProviderStream, outcome: Outcome, until: float, *, wanted: bool
) -> AsyncGenerator[bytes, None]:
    answer, now, counted = _Answer(), asyncio.get_running_loop().time, None
    try:
        try:
            async for chunk in chunks:
                if now() > until:
                    raise UpstreamTimeout
                told = answer.read(chunk.model_dump(mode="json", exclude_none=True))
                if told is not None:
                    outcome.begun = True
                    yield framed(to_json(told))
                if outcome.begun and answer.usage is not counted:
                    counted = answer.usage
                    outcome.count_prompt(counted)
        except (library.httpx.ReadError, library.httpx.RemoteProtocolError, library.APIConnectionError):
            # Whoever hangs up behind the end has said all.
            if not chunks.ended(has_reason=bool(answer.reasons)):
                raise
        if not chunks.ended(has_reason=bool(answer.reasons)):
            raise UpstreamMalformed
        outcome.begun = True
        outcome.count(answer.usage)
        for told in answer.last(with_usage=wanted):
            yield framed(to_json(told))
        outcome.ended = True
        yield DONE
    except UpstreamFailed:
        raise
    except Exception as exc:  # noqa: BLE001 - as below: of many kinds
        failure = worded(library, exc)
        raise failure from failure.__cause__ or exc
    finally:
        await chunks.aclose()


class _Answer:
    """The chunks of one stream as OpenAI words them: one id, the role first, the reasons and the usage last."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        """Why each of the choices ends."""
        self.usage: dict[str, Any] | None = None
        """What was used, by the last word on it."""
        self._shared: dict[str, Any] = {}
        self._begun: set[int] = set()

    def read(self, chunk: dict[str, Any]) -> dict[str, Any] | None:
        """What is passed on of a chunk now; None for nothing."""
        self.usage = chunk.pop("usage", None) or self.usage
        choices = [choice for choice in chunk.get("choices", ()) if self._tells(choice)]
        if not self._shared:
            self._shared = {name: chunk.get(name) for name in ("id", "created", "model", "object")}
        if not choices:
            return None
        further = {name: value for name, value in chunk.items() if value not in ([], {})}
        return {**further, **self._shared, "choices": choices}

    def last(self, *, with_usage: bool) -> Iterator[dict[str, Any]]:
        """What comes behind all the rest."""
        for index, reason in sorted(self.reasons.items()):
            yield {**self._shared, "choices": [{"index": index, "delta": {}, "finish_reason": reason}]}
        if with_usage and self.usage is not None:
            yield {**self._shared, "choices": [], "usage": self.usage}

    def _tells(self, choice: dict[str, Any]) -> bool:
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
        if index not in self._begun:
            self._begun.add(index)
            choice["delta"] = {"role": "assistant", **delta}
        return True


async def _asked(
    library: Any,
    call: Any,
    upstream: Upstream,
    body: Mapping[str, Any],
    outcome: Outcome,
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
    return await dropping(plain, outcome, partial(_posted, library, call, upstream, options))


def _refuse_untranslatable(body: Mapping[str, Any], upstream: Upstream) -> None:
    """RequestRefused for what the library would leave out without a word, or stumble over."""
    for name in ("functions", "function_call"):
        if name in body:
            raise refused(name, "is not known to this model: send `tools` and `tool_choice`")
    # Its own chat models are relayed; the others are asked for a response, of which there is one.
    is_openai = upstream.provider == "openai"
    if is_openai and "n" in body:
        raise refused("n", "is 1 for this model: send the request several times")
    for at, tool in objects_in(body, "tools"):
        if tool.get("type") == "custom" and not is_openai:
            raise refused(f"{at}.type", "is `function` for this model: tools that take free text are OpenAI's")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "custom":
        raise refused("tool_choice.type", "is `function` for this model")


async def _posted(
    library: Any, call: Any, upstream: Upstream, options: Mapping[str, Any], body: Mapping[str, Any]
) -> Any:
    given = {name: value for name, value in body.items() if name in _KNOWN}
    kept = _KNOWN | _OURS | _WITHHELD.get(upstream.provider, frozenset())
    further = {name: value for name, value in body.items() if name not in kept}
    if further and upstream.provider == "anthropic":
        given["client"] = adding(library, further)
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
        failure = worded(library, exc, body, upstream)
        raise failure from failure.__cause__ or exc


async def _whole(library: Any, call: Any, upstream: Upstream, body: Mapping[str, Any], outcome: Outcome) -> Any:
    patience = upstream.patience or USUAL
    try:
        # Silence ends in time by itself; this is for those who trickle. The library does not take being cancelled well.
        async with asyncio.timeout(patience.total + _CONNECT_SECONDS):
            return await _asked(library, call, upstream, body, outcome, patience.total)
    except TimeoutError as exc:
        raise UpstreamTimeout from exc


def worded(
    library: Any, exc: Exception, body: Mapping[str, Any] | None = None, upstream: Upstream | None = None
) -> BaobabError:
    """What the library raises, in our words."""
    kinds = library.exceptions
    if isinstance(exc, kinds.UnsupportedParamsError):
        return _unsupported(str(exc), body or {}, upstream)
    http, causes = library.httpx, tuple(_causes(exc))
    broken = next((cause for cause in causes if isinstance(cause, http.TransportError)), None)
    if isinstance(broken, (http.ConnectError, http.ConnectTimeout, http.PoolTimeout)):
        return UpstreamFailed("The model's provider cannot be reached.").for_nothing()
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
        told = _provider_words(str(exc))
        if isinstance(exc, kinds.ContextWindowExceededError):
            told["code"] = "context_length_exceeded"
        elif isinstance(exc, kinds.ContentPolicyViolationError):
            told.setdefault("code", "content_policy_violation")
        return refusal(status, to_json({"error": told}), headers, body, upstream)
    malformed = isinstance(exc, (TypeError, LookupError, ValueError, AttributeError))
    return UpstreamMalformed() if malformed else UpstreamFailed()


def _unsupported(words: str, body: Mapping[str, Any], upstream: Upstream | None) -> BaobabError:
    """What the library has refused by itself, without the provider: by the first parameter that it names."""
    named = [name for name in _WORD.findall(words) if is_parameter(name) and name in body]
    error = {
        "message": words.partition("litellm.UnsupportedParamsError: ")[2] or words,
        "type": "unsupported_parameter",
    }
    if named:
        error["param"] = named[0]
    return refusal(400, to_json({"error": error}), None, body, upstream)


def _provider_words(words: str) -> dict[str, Any]:
    """What the provider has said, out of what the library makes of it: a text with JSON at its end."""
    begins = words.find("{")
    if begins >= 0:
        try:
            told = from_json(words[begins:], allow_partial=True)
        except ValueError:
            told = None
        error = told.get("error") if isinstance(told, dict) else None
        if isinstance(error, dict):
            return dict(error)
    return {"message": words.rpartition("Exception - ")[2]}


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """An exception, and what it was raised for: the library gives the status 500 to whatever has none."""
    found: BaseException | None = exc
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__
