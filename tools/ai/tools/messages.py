"""Messages: Anthropic's wire."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.gateway.errors import ThreadUnsupported
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.wires.chunks import encode_named_event
from baobab.runtime.gateway.wires.messages import MessagesWire, TokenCountWire
from baobab.runtime.gateway.wires.messages_count import estimate_tokens
from baobab.tools.ai.answer_headers import set_answer_headers
from baobab.tools.ai.bases import ANTHROPIC
from baobab.tools.ai.errors import MESSAGES_ENVELOPE
from baobab.tools.ai.model_calls import preview_model
from baobab.tools.ai.schemas import Counted
from baobab.tools.ai.timeouts import FROM_HEADERS, TimeoutHeader
from baobab.tools.ai.tools.chat import MaxTokens, Messages, ModelName
from baobab.tools.ai.toolset import CALLED, CALLING, MOST_BYTES
from baobab.tools.ai.unpriced import without_unpriced
from baobab.tools.ai.wire_answers import answer_on_wire, resolve_models
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.limits import GATEWAY_REQUESTS
from baobab.tools.core.toolset import Guard, Mcp, Rest
from baobab.tools.core.types import AnyJsonObject, JsonObject, Text

System = Annotated[str, Text(900_000, nul=True)] | Annotated[list[AnyJsonObject], Field(max_length=1000)]
Beta = Annotated[str, Text(2000), Field(description="Names of Anthropic's betas, with commas between.")]
Version = Annotated[
    str, Text(10, pattern=r"^\d{4}-\d\d-\d\d$"), Field(description="The version of Anthropic's wire, a date.")
]
_FROM_HEADERS = {"anthropic_beta": "anthropic-beta", "anthropic_version": "anthropic-version"}
_ELSEWHERE = frozenset(("fallbacks", "fallback_credit_token", "billing_policy", "workspace_id", "user_profile_id"))
# They mean nothing on this wire; translated, they would ask for more than was set aside.
_MORE = frozenset(("n", "max_completion_tokens"))
# Those whose words the vendor knows, and which the caller runs.
_RUN_BY_THE_CALLER = re.compile(r"custom|(?:bash|text_editor|memory|computer|computer_toolset|browser_toolset)_\d{8}")
# Those that change neither what is charged, nor who answers, nor reach what is kept for a key that others call with,
# nor let a tool stand where it is not looked for.
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
    mcp=Mcp(keywords="Claude, Anthropic Messages API, Anthropic compatible; Anthropic-Schnittstelle; API de Anthropic"),
    guard=Guard(preview=preview_model("chat")),
)
async def gateway_messages(
    call: Call,
    messages: Messages,
    max_tokens: MaxTokens,
    model: ModelName | None = None,
    system: System | None = None,
    stream: bool | None = None,
    beta: bool = False,  # noqa: ARG001 - what clients say, and nobody needs
    anthropic_beta: Beta | None = None,
    anthropic_version: Version | None = None,
    baobab_timeout: TimeoutHeader | None = None,
    **further: Any,
) -> JsonObject:
    """Have a model answer a conversation, on the wire of Anthropic's Messages.

    Any model can be asked; fields that are not listed here are passed on. The key may come in `x-api-key`.

    messages: the conversation, each `{role, content}`.
    max_tokens: the most that the answer may have; an app's maxTokensPerRequest where that is less.
    model: left out, the app's default model, or the platform's.
    system: what the model is told before the conversation.
    stream: answer in server-sent events, where the door can.
    beta: as Anthropic's clients say it; it makes no difference.
    anthropic_beta: those that change nothing of what is charged are passed on to Anthropic's own models.
    anthropic_version: passed on to Anthropic's own models; left out, 2023-06-01.
    baobab_timeout: how long it may take at most; over REST also the header `x-baobab-timeout`.
    """
    body = {**_body(call, messages, system, further), "max_tokens": max_tokens}
    wire = MessagesWire(_passed_headers(anthropic_beta, anthropic_version))
    answer: dict[str, Any] = await answer_on_wire(
        call, wire, body, model, max_tokens, _render_error, stream=stream, allowed=baobab_timeout, beat=_PING
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
    mcp=Mcp(
        keywords=(
            "how many tokens, token count, prompt length, context size, estimate before sending; "
            "Token zählen; "
            "contar tokens"
        )
    ),
    guard=Guard(preview=preview_model("chat")),
)
async def gateway_messages_count(
    call: Call,
    messages: Messages,
    model: ModelName | None = None,
    system: System | None = None,
    beta: bool = False,  # noqa: ARG001 - what clients say, and nobody needs
    anthropic_beta: Beta | None = None,
    anthropic_version: Version | None = None,
    **further: Any,
) -> Counted:
    """Count the tokens of a request for a message, without having it answered. Free.

    Of Anthropic's own models they are as Anthropic counts them, of all others an estimate: a token for four bytes.

    messages: the conversation, each `{role, content}`.
    model: left out, the app's default model, or the platform's.
    system: what the model is told before the conversation.
    beta: as Anthropic's clients say it; it makes no difference.
    anthropic_beta: those that change nothing of what is charged are passed on to Anthropic's own models.
    anthropic_version: passed on to Anthropic's own models; left out, 2023-06-01.
    """
    body = _body(call, messages, system, further)
    wire = TokenCountWire(_passed_headers(anthropic_beta, anthropic_version))
    own, (first, *_) = await resolve_models(call, model)
    set_answer_headers(call, first, cost=0)
    if first.provider != wire.provider:
        return {"input_tokens": estimate_tokens(body, first)}
    gateway = call.services.part(Gateway)
    counted = await gateway.count_tokens(wire, first, body, gateway.find_own_provider(first, own.provider_access))
    return {"input_tokens": counted["input_tokens"]}


def _body(call: Call, messages: list[dict[str, Any]], system: Any, further: Mapping[str, Any]) -> dict[str, Any]:
    if further.get("thread") is not None:
        raise ThreadUnsupported
    further = without_unpriced(
        call,
        further,
        elsewhere=_ELSEWHERE | _MORE,
        theirs=_runs_itself,
        known="`custom` and those of Anthropic's that the caller runs",
    )
    body = {"messages": messages, **further}
    return body if system is None else {**body, "system": system}


def _passed_headers(beta: str | None, version: str | None) -> dict[str, str]:
    """The caller's headers that the vendor is sent, and no others."""
    betas = dict.fromkeys(name.strip() for name in (beta or "").split(","))
    told = {"anthropic-beta": ",".join(filter(_BETA.fullmatch, betas)), "anthropic-version": version}
    return {name: value for name, value in told.items() if value}


def _runs_itself(kind: Any) -> bool:
    return kind is None or (isinstance(kind, str) and _RUN_BY_THE_CALLER.fullmatch(kind) is not None)


def _render_error(error: BaobabError, _before: int) -> bytes:
    return encode_named_event(MESSAGES_ENVELOPE.render(error, ""))
