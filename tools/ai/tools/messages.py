"""The Messages API, in Anthropic's wire format."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.gateway.errors import ThreadUnsupported
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.wires.chunks import encode_named_event
from baobab.runtime.gateway.wires.messages import MessagesWire, TokenCountWire
from baobab.runtime.gateway.wires.messages_request import estimate_tokens
from baobab.tools.ai.answer_headers import set_answer_headers
from baobab.tools.ai.bases import ANTHROPIC
from baobab.tools.ai.errors import MESSAGES_ENVELOPE
from baobab.tools.ai.model_choice import preview_model
from baobab.tools.ai.schemas import Counted
from baobab.tools.ai.timeouts import FROM_HEADERS, TimeoutHeader
from baobab.tools.ai.tools.chat import MaxTokens, Messages, ModelName
from baobab.tools.ai.toolset import CALLED, CALLING, MOST_BYTES
from baobab.tools.ai.unpriced import without_unpriced
from baobab.tools.ai.wire_answers import answer_on_wire, resolve_models
from baobab.tools.core import Audit, BaobabError, Call, Guard, JsonObject, Rest, Text
from baobab.tools.core.limits.limits import GATEWAY_REQUESTS
from baobab.tools.core.types import AnyJsonObject

System = Annotated[str, Text(900_000, nul=True)] | Annotated[list[AnyJsonObject], Field(max_length=1000)]
Beta = Annotated[str, Text(2000), Field(description="Names of Anthropic's betas, separated by commas.")]
Version = Annotated[
    str, Text(10, pattern=r"^\d{4}-\d\d-\d\d$"), Field(description="The version of Anthropic's API, a date.")
]
_FROM_HEADERS = {"anthropic_beta": "anthropic-beta", "anthropic_version": "anthropic-version"}
_ELSEWHERE = frozenset(("fallbacks", "fallback_credit_token", "billing_policy", "workspace_id", "user_profile_id"))
# This wire format does not have them; in a chat completion they would ask for more than was reserved.
_MORE = frozenset(("n", "max_completion_tokens"))
# The types of tools that Anthropic defines and the caller runs.
_RUN_BY_THE_CALLER = re.compile(r"custom|(?:bash|text_editor|memory|computer|computer_toolset|browser_toolset)_\d{8}")
# The betas that change neither the charge nor the model, give no access to data stored under a shared key, and do not
# add tools in places that are not checked.
_BETAS = (
    "cache-diagnosis",
    "claude-code",
    "computer-use",
    "context-1m",
    "context-management",
    "dev-full-thinking",
    "effort",
    "extended-cache-ttl",
    "fine-grained-tool-streaming",
    "interleaved-thinking",
    "model-context-window-exceeded",
    "output-128k",
    "pdfs",
    "prompt-caching",
    "structured-outputs",
    "task-budgets",
    "thinking-display-updates",
    "thinking-token-count",
    "token-counting",
    "token-efficient-tools",
)
_BETA = re.compile(rf"(?:{'|'.join(_BETAS)})-\d{{4}}-?\d\d-?\d\d")
_PING = encode_named_event({"type": "ping"})
_EXAMPLE = {"messages": [{"role": "user", "content": "Hello!"}]}


@ANTHROPIC.tool(
    "POST /messages",
    in_app="ai_messages",
    limit=GATEWAY_REQUESTS,
    effect="external",
    raises=CALLING,
    audit=CALLED,
    also="/v1/messages",
    rest=Rest(
        query=("beta", *_FROM_HEADERS, *FROM_HEADERS),
        from_headers={**_FROM_HEADERS, **FROM_HEADERS},
        max_body=MOST_BYTES,
        examples={"max_tokens": 1024, **_EXAMPLE},
    ),
    guard=Guard(preview=preview_model("chat")),
)
async def gateway_messages(
    call: Call,
    messages: Messages,
    max_tokens: MaxTokens,
    model: ModelName | None = None,
    system: System | None = None,
    stream: bool | None = None,
    beta: bool = False,
    anthropic_beta: Beta | None = None,
    anthropic_version: Version | None = None,
    baobab_timeout: TimeoutHeader | None = None,
    **further: Any,
) -> JsonObject:
    """Have a model answer a conversation, in the format of Anthropic's Messages API.

    You can call any model. Fields that are not listed here are passed on. You can also send the key in `x-api-key`.

    messages: the messages of the conversation, each `{role, content}`.
    max_tokens: the most tokens that the answer may have. If an app's maxTokensPerRequest is less, that applies.
    model: if left out, the app's default model, or the server's.
    system: the instructions for the model.
    stream: answer with server-sent events. MCP always answers in one piece.
    beta: sent by Anthropic's clients; it has no effect.
    anthropic_beta: betas that do not affect the charge are passed on to Anthropic's own models.
    anthropic_version: passed on to Anthropic's own models; if left out, 2023-06-01.
    baobab_timeout: how long the call may take. Over REST you can also send the header `x-baobab-timeout`.
    """
    body = {**_body(call, messages, system, further), "max_tokens": max_tokens}
    wire = MessagesWire(_passed_headers(anthropic_beta, anthropic_version))
    answer: dict[str, Any] = await answer_on_wire(
        call, wire, body, model, max_tokens, _render_error, stream=stream, timeout_header=baobab_timeout, beat=_PING
    )
    return answer


@ANTHROPIC.tool(
    "POST /messages/count_tokens",
    in_app="ai_messages_count",
    limit=GATEWAY_REQUESTS,
    effect="external",
    raises=CALLING,
    audit=Audit("ai.count", category="ai", action="read", resource="model", tallied=True),
    also="/v1/messages/count_tokens",
    rest=Rest(query=("beta", *_FROM_HEADERS), from_headers=_FROM_HEADERS, max_body=MOST_BYTES, examples=_EXAMPLE),
    guard=Guard(preview=preview_model("chat")),
)
async def gateway_messages_count(
    call: Call,
    messages: Messages,
    model: ModelName | None = None,
    system: System | None = None,
    beta: bool = False,
    anthropic_beta: Beta | None = None,
    anthropic_version: Version | None = None,
    **further: Any,
) -> Counted:
    """Count the tokens of a request for a message, without having it answered. Free.

    For Anthropic's own models the count is Anthropic's. For all others it is an estimate of one token for four bytes.

    messages: the messages of the conversation, each `{role, content}`.
    model: if left out, the app's default model, or the server's.
    system: the instructions for the model.
    beta: sent by Anthropic's clients; it has no effect.
    anthropic_beta: betas that do not affect the charge are passed on to Anthropic's own models.
    anthropic_version: passed on to Anthropic's own models; if left out, 2023-06-01.
    """
    body = _body(call, messages, system, further)
    wire = TokenCountWire(_passed_headers(anthropic_beta, anthropic_version))
    call_settings, (model_, *_) = await resolve_models(call, model)
    set_answer_headers(call, model_, cost=0)
    if model_.provider != wire.provider:
        return {"input_tokens": estimate_tokens(body, model_)}
    gateway = call.services.part(Gateway)
    token_count = await gateway.count_tokens(
        wire, model_, body, gateway.find_own_provider(model_, call_settings.provider_access)
    )
    return {"input_tokens": token_count["input_tokens"]}


def _body(call: Call, messages: list[dict[str, Any]], system: Any, further: Mapping[str, Any]) -> dict[str, Any]:
    if further.get("thread") is not None:
        raise ThreadUnsupported
    further = without_unpriced(
        call,
        further,
        elsewhere=_ELSEWHERE | _MORE,
        is_own_kind=_runs_itself,
        known_kinds="`custom` and those of Anthropic's that the caller runs",
    )
    body = {"messages": messages, **further}
    return body if system is None else {**body, "system": system}


def _passed_headers(beta: str | None, version: str | None) -> dict[str, str]:
    """Returns those of the caller's headers that are sent to the vendor."""
    betas = dict.fromkeys(name.strip() for name in (beta or "").split(","))
    headers = {"anthropic-beta": ",".join(filter(_BETA.fullmatch, betas)), "anthropic-version": version}
    return {name: value for name, value in headers.items() if value}


def _runs_itself(kind: Any) -> bool:
    return kind is None or (isinstance(kind, str) and _RUN_BY_THE_CALLER.fullmatch(kind) is not None)


def _render_error(error: BaobabError, _before: int) -> bytes:
    return encode_named_event(MESSAGES_ENVELOPE.render(error, ""))
