"""One answer on four wires: OpenAI's chat completions and responses, Anthropic's messages, Google's streams.

Bytes, made once.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

PROMPT_TOKENS = 11
CREATED = 1_800_000_000
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Script:
    """The answer: words, a token each, or calls of tools."""

    words: tuple[str, ...]
    calls: tuple[tuple[str, str], ...] = ()  # name, arguments as JSON text
    usage: bool = True
    cached_tokens: int = 0
    written_tokens: int = 0
    """Of the prompt, to the cache; an hour's are half of them."""
    thoughts: str = ""
    """What was thought before, as chat completions tell it."""
    finish: str = ""
    """Why it ended, as chat completions tell it; what suits the rest if left out."""

    @property
    def completion_tokens(self) -> int:
        return len(self.words) + 5 * len(self.calls)

    @property
    def text(self) -> str:
        return "".join(self.words)


@dataclass(frozen=True, slots=True)
class Wire:
    whole: Callable[[str, Script], bytes]
    # model, script, whether the caller asked for usage -> SSE frames, without an end that the wire has beside them
    frames: Callable[[str, Script, bool], tuple[bytes, ...]]
    error: Callable[[int, str, str], dict[str, Any]]
    end: bytes


def encode_data(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def _encode_event(payload: dict[str, Any]) -> bytes:
    return f"event: {payload['type']}\n".encode() + encode_data(payload)


# Chat completions


def _chat_usage(script: Script) -> dict[str, Any]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": script.completion_tokens,
        "total_tokens": PROMPT_TOKENS + script.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": script.cached_tokens},
    }


def _chat_calls(script: Script) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(script.calls)
    ]


@lru_cache(maxsize=64)
def _chat_whole(model: str, script: Script) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": script.text or None}
    if script.thoughts:
        message["reasoning_content"] = script.thoughts
    if script.calls:
        message["tool_calls"] = _chat_calls(script)
    finish = script.finish or ("tool_calls" if script.calls else "stop")
    answer = {
        "id": "chatcmpl-upstream",
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    return json.dumps({**answer, "usage": _chat_usage(script)} if script.usage else answer).encode()


@lru_cache(maxsize=64)
def _chat_frames(model: str, script: Script, usage: bool) -> tuple[bytes, ...]:
    head = {"id": "chatcmpl-upstream", "object": "chat.completion.chunk", "created": CREATED, "model": model}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": script.thoughts}] if script.thoughts else []
    deltas += [{"content": word} for word in script.words]
    for number, call in enumerate(_chat_calls(script)):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        deltas.append({"tool_calls": [{"index": number, **call, "function": {"name": name, "arguments": ""}}]})
        for part in (arguments[:5], arguments[5:]):
            deltas.append({"tool_calls": [{"index": number, "function": {"arguments": part}}]})
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls" if script.calls else "stop"})
    frames = [encode_data({**head, "choices": [choice]}) for choice in choices]
    if usage and script.usage:
        frames.append(encode_data({**head, "choices": [], "usage": _chat_usage(script)}))
    return tuple(frames)


_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def _openai_error(status: int, code: str, message: str) -> dict[str, Any]:
    type_ = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


# Responses


def _response(model: str, script: Script, *, status: str = "completed") -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if script.words:
        part = {"type": "output_text", "text": script.text, "annotations": [], "logprobs": []}
        output.append({"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": [part]})
    for number, (name, arguments) in enumerate(script.calls):
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
        output.append({**call, "name": name, "arguments": arguments})
    usage = {
        "input_tokens": PROMPT_TOKENS,
        "input_tokens_details": {"cached_tokens": script.cached_tokens, "cache_write_tokens": script.written_tokens},
        "output_tokens": script.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": PROMPT_TOKENS + script.completion_tokens,
    }
    return {
        "id": "resp_upstream",
        "object": "response",
        "created_at": float(CREATED),
        "model": model,
        "status": status,
        "output": output if status == "completed" else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if script.usage and status == "completed" else None,
    }


@lru_cache(maxsize=64)
def _response_whole(model: str, script: Script) -> bytes:
    return json.dumps(_response(model, script)).encode()


@lru_cache(maxsize=64)
def _response_frames(model: str, script: Script, usage: bool) -> tuple[bytes, ...]:
    whole = _response(model, script)
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response(model, script, status="in_progress")}
    ]
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        begun_item = {**item, "status": "in_progress"}
        if item["type"] == "message":
            part = item["content"][0]
            at["content_index"] = 0
            events += [
                {"type": "response.output_item.added", "output_index": index, "item": {**begun_item, "content": []}},
                {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
                *({"type": "response.output_text.delta", **at, "delta": word, "logprobs": []} for word in script.words),
                {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []},
                {"type": "response.content_part.done", **at, "part": part},
            ]
        else:
            call_fields = {"name": item["name"], "arguments": item["arguments"]}
            events += [
                {"type": "response.output_item.added", "output_index": index, "item": {**begun_item, "arguments": ""}},
                {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]},
                {"type": "response.function_call_arguments.done", **at, **call_fields},
            ]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return tuple(_encode_event({**event, "sequence_number": number}) for number, event in enumerate(events))


# Messages


def _anthropic_usage(script: Script) -> dict[str, Any]:
    if not script.usage:
        return {"input_tokens": 0, "output_tokens": 0}
    cached_tokens, written_tokens = script.cached_tokens, script.written_tokens
    hour = written_tokens // 2
    return {
        # This vendor does not count what was cached among the input.
        "input_tokens": PROMPT_TOKENS - cached_tokens - written_tokens,
        "cache_read_input_tokens": cached_tokens,
        "cache_creation_input_tokens": written_tokens,
        "cache_creation": {"ephemeral_5m_input_tokens": written_tokens - hour, "ephemeral_1h_input_tokens": hour},
        "output_tokens": script.completion_tokens,
    }


def _blocks(script: Script) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": script.text}] if script.words else []
    for number, (name, arguments) in enumerate(script.calls):
        blocks.append({"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": json.loads(arguments)})
    return blocks


def _anthropic_message(model: str, script: Script) -> dict[str, Any]:
    return {
        "id": "msg_upstream",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _blocks(script),
        "stop_reason": "tool_use" if script.calls else "end_turn",
        "stop_sequence": None,
        "usage": _anthropic_usage(script),
    }


@lru_cache(maxsize=64)
def _message_whole(model: str, script: Script) -> bytes:
    return json.dumps(_anthropic_message(model, script)).encode()


@lru_cache(maxsize=64)
def _message_frames(model: str, script: Script, usage: bool) -> tuple[bytes, ...]:
    return tuple(map(_encode_event, _message_events(_anthropic_message(model, script), script)))


def _message_events(whole: dict[str, Any], script: Script) -> Iterator[dict[str, Any]]:
    begun_message = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": begun_message}
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": word} for word in script.words]
        else:
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": whole["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _anthropic_error(status: int, code: str, message: str) -> dict[str, Any]:
    type_ = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": type_, "message": message}}


# Google's, streams only


@lru_cache(maxsize=64)
def _google_frames(model: str, script: Script, usage: bool) -> tuple[bytes, ...]:
    parts: list[dict[str, Any]] = [{"text": word} for word in script.words]
    parts += [{"functionCall": {"name": name, "args": json.loads(arguments)}} for name, arguments in script.calls]
    token_counts = {"promptTokenCount": PROMPT_TOKENS, "candidatesTokenCount": script.completion_tokens}
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}], "modelVersion": model}
        for part in parts
    ]
    # The reason comes with the last part, not behind it.
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    chunks[-1]["usageMetadata"] = {**token_counts, "totalTokenCount": sum(token_counts.values())}
    return tuple(map(encode_data, chunks))


def _google_error(status: int, code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": code.upper()}}


def _google_whole(model: str, script: Script) -> bytes:
    raise NotImplementedError(model, script)


CHAT = Wire(_chat_whole, _chat_frames, _openai_error, DONE)
RESPONSES = Wire(_response_whole, _response_frames, _openai_error, b"")
MESSAGES = Wire(_message_whole, _message_frames, _anthropic_error, b"")
GOOGLE = Wire(_google_whole, _google_frames, _google_error, b"")
