"""The built-in model, asked as a client asks and read with OpenAI's own types."""

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import settings
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage

from baobab.runtime.gateway.builtin.echo import complete_chat, stream_chat

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
        },
    }
    for name in ("kv_get", "kv_put")
]
QUIETLY = settings(max_examples=150)
LABEL = "[baobab/echo, the built-in model]"


def ask_echo(prompt: Any, **request: Any) -> ChatCompletion:
    """The answer to one message of a user."""
    return complete_both_ways([{"role": "user", "content": prompt}], **request)


def complete_both_ways(messages: list[dict[str, Any]], **request: Any) -> ChatCompletion:
    """Both forms of the answer, which must be the same, as the client's types read them."""
    whole = {"model": "baobab/echo", "messages": messages, **request}
    answer = complete_chat(whole, completion_id="chatcmpl-1", created=1_800_000_000)
    completion = ChatCompletion.model_validate(answer, strict=True)
    state = ChatCompletionStreamState()
    for chunk in stream_chat(
        {**whole, "stream": True, "stream_options": {"include_usage": True}},
        completion_id="chatcmpl-1",
        created=1_800_000_000,
    ):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk, strict=True))
    current_completion_snapshot = state.current_completion_snapshot
    assert [choice.message.content for choice in current_completion_snapshot.choices] == [
        choice.message.content for choice in completion.choices
    ]
    assert [choice.finish_reason for choice in current_completion_snapshot.choices] == [
        choice.finish_reason for choice in completion.choices
    ]
    assert [list_calls(choice.message) for choice in current_completion_snapshot.choices] == [
        list_calls(choice.message) for choice in completion.choices
    ]
    assert current_completion_snapshot.usage == completion.usage
    json.dumps(answer, allow_nan=False, ensure_ascii=False).encode()
    return completion


def answer_text(answer: ChatCompletion) -> str:
    content = answer.choices[0].message.content
    assert content is not None
    return content


def list_calls(message: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]


def list_requested_calls(answer: ChatCompletion) -> list[tuple[str, Any]]:
    """Names and arguments of the calls that the model asks for."""
    return [(name, json.loads(arguments)) for _, name, arguments in list_calls(answer.choices[0].message)]


def run_agent(prompt: str, results: Mapping[str, str], *, most: int = 20, **request: Any) -> tuple[list[Any], str]:
    """Every step's calls, and the last text, of an agent whose tools always answer the same."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    steps: list[Any] = []
    for number in range(most):
        answer = complete_chat(
            {"messages": messages, "tools": TOOLS, **request}, completion_id=f"chatcmpl-{number}", created=0
        )
        message = ChatCompletionMessage.model_validate(answer["choices"][0]["message"])
        if not message.tool_calls:
            return steps, message.content or ""
        steps.append([(name, json.loads(arguments)) for _, name, arguments in list_calls(message)])
        messages.append(message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call_id, "content": results[name]}
            for call_id, name, _ in list_calls(message)
        ]
    return steps, "never ended"
