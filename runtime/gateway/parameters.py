"""Parameters that a model may refuse, and which of them may be left out of a request."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from baobab.runtime.gateway.errors import ParameterRefused
from baobab.runtime.gateway.usage_meter import UsageMeter

T = TypeVar("T")

# The values that mean the same as leaving the parameter out.
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "stop": ([], ""),
    "store": (False,),
    "temperature": (1,),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_p": (1,),
    "user": ("",),
    "verbosity": ("medium",),
}
# Without these the answer is of the same kind, so a caller may allow that they are left out.
_OPTIONAL = frozenset(
    (
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "metadata",
        "min_p",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "reasoning_effort",
        "repetition_penalty",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "stop_sequences",
        "store",
        "temperature",
        "thinking",
        "top_k",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
    )
)
PARAMETERS = (
    frozenset(_DEFAULTS)
    | _OPTIONAL
    | frozenset(
        (
            "input_schema",
            "json_object",
            "json_schema",
            "max_completion_tokens",
            "max_output_tokens",
            "max_tokens",
            "tool_call_id",
            "tool_calls",
            "tool_choice",
            "tool_result",
            "tool_use",
            "tool_use_id",
        )
    )
)
"""Names that may appear in the providers' messages, because they are public."""
DROP = "drop_params"
"""The field of a request that allows optional parameters to be left out. It is not sent to providers."""


_MOST_DROPPED = 8


def is_parameter(name: str) -> bool:
    """Returns whether this is a parameter that may be left out of some requests."""
    return name in _OPTIONAL or name in _DEFAULTS


def is_default(name: str, value: Any) -> bool:
    """Returns whether the value means the same as leaving the parameter out. True does not count as 1."""
    return value is None or any(
        value == default and isinstance(value, bool) is isinstance(default, bool) for default in _DEFAULTS.get(name, ())
    )


def may_drop(name: str, value: Any, *, is_allowed: bool) -> bool:
    """Returns whether a parameter that a model does not take may be left out. is_allowed: by the caller."""
    return is_default(name, value) or (is_allowed and name in _OPTIONAL)


async def ask_without_refused(
    body: Mapping[str, Any], meter: UsageMeter, ask: Callable[[Mapping[str, Any]], Awaitable[T]]
) -> T:
    """Sends a request, and sends it again without each refused parameter that may be left out. Refusals cost nothing.

    meter: says whether optional parameters may be left out, and records those that were.
    """
    body = {name: value for name, value in body.items() if name != DROP} if DROP in body else body
    for _ in range(_MOST_DROPPED):
        try:
            return await ask(body)
        except ParameterRefused as exc:
            name = exc.parameter
            if name not in body or not may_drop(name, body[name], is_allowed=meter.may_drop):
                raise
            if not is_default(name, body[name]):
                meter.dropped_parameters.append(name)
            body = {field: value for field, value in body.items() if field != name}
    return await ask(body)
