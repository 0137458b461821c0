"""`baobab/echo`: a chat model that makes every feature run on a machine without a provider's key.

It understands nothing. It repeats what it was told, follows commands (`plan.py`), writes JSON to a schema
(`schema_instance.py`), and counts (`tokens.py`); the same request has the same answer, always. Requests and
answers are those of OpenAI's `/v1/chat/completions`. docs/models.md tells the rest.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from baobab.runtime.gateway.builtin import chat_request, tokens
from baobab.runtime.gateway.builtin.answer import EchoAnswer, write_answer
from baobab.runtime.gateway.builtin.chat_request import CONTEXT_WINDOW, BadParameter, ChatRequest, ContextTooLong
from baobab.runtime.work_budget import Budget

__all__ = [
    "FINGERPRINT",
    "MODEL",
    "BadParameter",
    "ContextTooLong",
    "complete_chat",
    "full_budget",
    "small_budget",
    "stream_chat",
]

MODEL = "baobab/echo"
_MOST_CHARACTERS = CONTEXT_WINDOW * tokens.LONGEST
_MOST_STEPS, _FEW_STEPS = 20_000, 400
FINGERPRINT = "baobab_echo_1"


def full_budget() -> Budget:
    """What one request may cost: about 50 ms, and as many bytes made up as the model can read."""
    return Budget(_MOST_STEPS, _MOST_CHARACTERS)


def small_budget() -> Budget:
    """What may be done on the event loop: about a millisecond."""
    return Budget(_FEW_STEPS, 64 * 1024)


def complete_chat(
    request: Mapping[str, Any], *, completion_id: str, created: int, budget: Budget | None = None
) -> dict[str, Any]:
    """A `chat.completion`. created: Unix time in seconds. Raises BadParameter, and OverBudget."""
    budget = budget or full_budget()
    chat, prompt_tokens = _parse_request(request, budget)
    reply = write_answer(chat, budget)
    choices = [
        {
            "index": index,
            "message": _render_message(reply, completion_id, index),
            "logprobs": None,
            "finish_reason": reply.finish,
        }
        for index in range(chat.choices)
    ]
    return {
        **_render_head("chat.completion", completion_id, created),
        "choices": choices,
        "usage": _render_usage(prompt_tokens, reply.token_count * chat.choices),
    }


def stream_chat(
    request: Mapping[str, Any], *, completion_id: str, created: int, budget: Budget | None = None
) -> Iterator[dict[str, Any]]:
    """The same answer as `chat.completion.chunk`s, a token each. Raises now what `complete` does, not with the first
    chunk.
    """
    budget = budget or full_budget()
    chat, prompt_tokens = _parse_request(request, budget)
    return _list_chunks(chat, write_answer(chat, budget), prompt_tokens, completion_id, created)


def _parse_request(request: Mapping[str, Any], budget: Budget) -> tuple[ChatRequest, int]:
    chat = chat_request.parse_request(request, budget)
    characters = len(chat.tools_text) + sum(
        len(message.text) + sum(len(call.name) + len(call.arguments) for call in message.calls)
        for message in chat.messages
    )
    if characters > _MOST_CHARACTERS:
        # More tokens than fit, whatever they are: counting them would only take time.
        raise ContextTooLong(characters // tokens.LONGEST)
    budget.spend(characters // 256)
    prompt_tokens = tokens.count_tokens(chat.tools_text)
    for message in chat.messages:
        prompt_tokens += tokens.PER_MESSAGE + tokens.count_tokens(message.text)
        prompt_tokens += tokens.PER_ATTACHMENT * len(message.attachments)
        for call in message.calls:
            prompt_tokens += tokens.PER_TOOL_CALL + tokens.count_tokens(call.name) + tokens.count_tokens(call.arguments)
    if prompt_tokens > CONTEXT_WINDOW:
        raise ContextTooLong(prompt_tokens)
    return chat, prompt_tokens


def _list_chunks(
    chat: ChatRequest, reply: EchoAnswer, prompt_tokens: int, completion_id: str, created: int
) -> Iterator[dict[str, Any]]:
    head = _render_head("chat.completion.chunk", completion_id, created)
    if chat.include_usage:
        head["usage"] = None
    for index in range(chat.choices):
        for delta in _list_deltas(reply, completion_id, index):
            yield {**head, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}]}
        yield {
            **head,
            "choices": [{"index": index, "delta": {}, "logprobs": None, "finish_reason": reply.finish}],
        }
    if chat.include_usage:
        yield {**head, "choices": [], "usage": _render_usage(prompt_tokens, reply.token_count * chat.choices)}


def _list_deltas(reply: EchoAnswer, completion_id: str, index: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if reply.text is None else ""}
    for token in tokens.split_tokens(reply.text or ""):
        yield {"content": token}
    for number, call in enumerate(_render_calls(reply, completion_id, index)):
        opening = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield {"tool_calls": [{"index": number, **opening}]}
        for token in tokens.split_tokens(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": number, "function": {"arguments": token}}]}


def _render_message(reply: EchoAnswer, completion_id: str, index: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.calls:
        message["tool_calls"] = _render_calls(reply, completion_id, index)
    return message


def _render_calls(reply: EchoAnswer, completion_id: str, index: int) -> list[dict[str, Any]]:
    return [
        {
            "id": _call_id(completion_id, index, number),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(reply.calls)
    ]


def _call_id(completion_id: str, index: int, number: int) -> str:
    """Another one for each completion: tools take it for what tells one call from the next."""
    return "call_" + blake2b(f"{completion_id}/{index}/{number}".encode(), digest_size=12).hexdigest()


def _render_head(kind: str, completion_id: str, created: int) -> dict[str, Any]:
    return {"id": completion_id, "object": kind, "created": created, "model": MODEL, "system_fingerprint": FINGERPRINT}


def _render_usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
