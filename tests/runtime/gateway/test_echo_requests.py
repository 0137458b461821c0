"""Requests that the built-in model refuses, and that it comes to an end with."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab.runtime.gateway.builtin.chat_request import CONTEXT_WINDOW
from baobab.runtime.gateway.builtin.echo import BadParameter, ContextTooLong, complete_chat, stream_chat
from tests.runtime.gateway.echo import LABEL, QUIETLY, TOOLS, ask_echo, complete_both_ways


def test_hostile_texts_come_to_an_end() -> None:
    ask_echo('{"a":' * 2_000, response_format={"type": "json_object"})


# Bad requests


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": ["text"]}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].image_url"),
        ({"messages": [{"role": "tool", "content": "1"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "tool", "content": "1", "tool_call_id": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"n": 17}, "n"),
        ({"n": True}, "n"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stream_options": True}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "include_usage"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a.b"}}]}, "tools[0].function.name"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].function.name"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": []}, "tool_choice"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
    ],
    ids=str,
)
def test_a_bad_request_is_refused_by_the_parameter_at_fault(request_: dict[str, Any], param: str) -> None:
    whole = {"messages": [{"role": "user", "content": "hi"}], **request_}
    for answer in (complete_chat, stream_chat):
        with pytest.raises(BadParameter) as refusal:
            answer(whole, completion_id="chatcmpl-1", created=0)
        assert refusal.value.param == param
        assert str(refusal.value).startswith(param)


_WORDS = st.sampled_from(["function", "user", "tool", "required", "json_schema", "text", "auto", "allowed_tools"])
_FIELDS = (
    "role content type function name parameters tool_calls id arguments text image_url schema json_schema mode tools"
)
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS.split()), inner, max_size=4),
    max_leaves=12,
)


@QUIETLY
@given(
    st.sampled_from(["messages", "tools", "tool_choice", "response_format", "stop", "n", "stream_options"]), _ANYTHING
)
def test_no_request_is_more_than_refused(name: str, value: Any) -> None:
    request = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, name: value}
    with contextlib.suppress(BadParameter):
        assert complete_chat(request, completion_id="x", created=0)["model"] == "baobab/echo"


def test_every_call_must_have_its_result() -> None:
    two = [
        {"id": f"call_{number}", "type": "function", "function": {"name": "kv_get", "arguments": "{}"}}
        for number in (1, 2)
    ]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": two},
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
    ]
    for more in ([], [{"role": "user", "content": "go on"}]):
        with pytest.raises(BadParameter, match="results of calls are missing: call_2"):
            complete_both_ways(messages + more)


def test_parameters_that_are_null_are_as_good_as_absent() -> None:
    names = ("max_tokens", "n", "stop", "stream_options", "tools", "tool_choice", "response_format")
    nothing = dict.fromkeys([*names, "parallel_tool_calls", "max_completion_tokens"])
    request = {"messages": [{"role": "user", "content": "hi"}], **nothing}
    assert (
        complete_chat(request, completion_id="x", created=0)["choices"][0]["message"]["content"]
        == f"{LABEL} You said: hi"
    )


def test_more_than_the_context_window_is_refused() -> None:
    with pytest.raises(ContextTooLong) as refusal:
        ask_echo("word " * CONTEXT_WINDOW)
    assert (refusal.value.param, refusal.value.code) == ("messages", "context_length_exceeded")
