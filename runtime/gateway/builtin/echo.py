"""`baobab/echo`: a chat model that makes every feature run on a machine without a provider's key.

It understands nothing. It repeats what it was told, follows commands (`plan.py`), writes JSON to a schema
(`schema_instance.py`), and counts (`tokens.py`); the same request has the same answer, always. Requests and
answers are those of OpenAI's `/v1/chat/completions`. docs/models.md tells the rest.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from baobab.runtime.gateway.builtin import chat_request, tokens
from baobab.runtime.gateway.builtin.answer import Answer, answer
from baobab.runtime.gateway.builtin.chat_request import CONTEXT_WINDOW, BadParameter, ChatRequest, ContextTooLong
from baobab.runtime.work_budget import Budget

__all__ = [
    "FINGERPRINT",
    "MODEL",
    "BadParameter",
    "ContextTooLong",
    "complete",
    "little_work",
    "most_work",
    "stream",
]

MODEL = "baobab/echo"
_MOST_CHARACTERS = CONTEXT_WINDOW * tokens.LONGEST
_MOST_STEPS, _FEW_STEPS = 20_000, 400
FINGERPRINT = "baobab_echo_1"


def most_work() -> Budget:
    """What one request may cost: about 50 ms, and as many bytes made up as the model can read."""
    return Budget(_MOST_STEPS, _MOST_CHARACTERS)


def little_work() -> Budget:
    """What may be done on the event loop: about a millisecond."""
    return Budget(_FEW_STEPS, 64 * 1024)


def complete(
    request: Mapping[str, Any], *, completion_id: str, created: int, budget: Budget | None = None
) -> dict[str, Any]:
    """A `chat.completion`. created: Unix time in seconds. Raises BadParameter, and OverBudget."""
    budget = budget or most_work()
    read, prompt_tokens = _read(request, budget)
    answered = answer(read, budget)
    choices = [
        {
            "index": index,
            "message": _message(answered, completion_id, index),
            "logprobs": None,
            "finish_reason": answered.finish,
        }
        for index in range(read.choices)
    ]
    return {
        **_head("chat.completion", completion_id, created),
        "choices": choices,
        "usage": _usage(prompt_tokens, answered.tokens * read.choices),
    }


def stream(
    request: Mapping[str, Any], *, completion_id: str, created: int, budget: Budget | None = None
) -> Iterator[dict[str, Any]]:
    """The same answer as `chat.completion.chunk`s, a token each. Raises now what `complete` does, not with the first
    chunk.
    """
    budget = budget or most_work()
    read, prompt_tokens = _read(request, budget)
    return _chunks(read, answer(read, budget), prompt_tokens, completion_id, created)


def _read(request: Mapping[str, Any], budget: Budget) -> tuple[ChatRequest, int]:
    read = chat_request.read(request, budget)
    characters = len(read.tools_text) + sum(
        len(message.text) + sum(len(call.name) + len(call.arguments) for call in message.calls)
        for message in read.messages
    )
    if characters > _MOST_CHARACTERS:
        # More tokens than fit, whatever they are: counting them would only take time.
        raise ContextTooLong(characters // tokens.LONGEST)
    budget.spend(characters // 256)
    prompt_tokens = tokens.count(read.tools_text)
    for message in read.messages:
        prompt_tokens += tokens.PER_MESSAGE + tokens.count(message.text)
        prompt_tokens += tokens.PER_ATTACHMENT * len(message.attachments)
        for call in message.calls:
            prompt_tokens += tokens.PER_TOOL_CALL + tokens.count(call.name) + tokens.count(call.arguments)
    if prompt_tokens > CONTEXT_WINDOW:
        raise ContextTooLong(prompt_tokens)
    return read, prompt_tokens


def _chunks(
    read: ChatRequest, answered: Answer, prompt_tokens: int, completion_id: str, created: int
) -> Iterator[dict[str, Any]]:
    head = _head("chat.completion.chunk", completion_id, created)
    if read.include_usage:
        head["usage"] = None
    for index in range(read.choices):
        for delta in _deltas(answered, completion_id, index):
            yield {**head, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}]}
        yield {
            **head,
            "choices": [{"index": index, "delta": {}, "logprobs": None, "finish_reason": answered.finish}],
        }
    if read.include_usage:
        yield {**head, "choices": [], "usage": _usage(prompt_tokens, answered.tokens * read.choices)}


def _deltas(answered: Answer, completion_id: str, index: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if answered.text is None else ""}
    for token in tokens.split(answered.text or ""):
        yield {"content": token}
    for number, call in enumerate(_tool_calls(answered, completion_id, index)):
        begun = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield {"tool_calls": [{"index": number, **begun}]}
        for token in tokens.split(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": number, "function": {"arguments": token}}]}


def _message(answered: Answer, completion_id: str, index: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answered.text, "refusal": None}
    if answered.wishes:
        message["tool_calls"] = _tool_calls(answered, completion_id, index)
    return message


def _tool_calls(answered: Answer, completion_id: str, index: int) -> list[dict[str, Any]]:
    return [
        {
            "id": _call_id(completion_id, index, number),
            "type": "function",
            "function": {"name": wish.name, "arguments": wish.arguments},
        }
        for number, wish in enumerate(answered.wishes)
    ]


def _call_id(completion_id: str, index: int, number: int) -> str:
    """Another one for each completion: tools take it for what tells one call from the next."""
    return "call_" + blake2b(f"{completion_id}/{index}/{number}".encode(), digest_size=12).hexdigest()


def _head(kind: str, completion_id: str, created: int) -> dict[str, Any]:
    return {"id": completion_id, "object": kind, "created": created, "model": MODEL, "system_fingerprint": FINGERPRINT}


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
