"""Messages: Anthropic's wire."""

import re
from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.gateway.wires.chunks import event
from baobab.runtime.gateway.wires.messages import MESSAGES
from baobab.tools.ai.access import GATEWAY_CALLERS
from baobab.tools.ai.chat import MaxTokens, Messages, ModelName
from baobab.tools.ai.errors import MESSAGES_ENVELOPE
from baobab.tools.ai.speaking import spoken
from baobab.tools.ai.toolset import CALLED, CALLING, MOST_BYTES, messages
from baobab.tools.ai.unpriced import refuse_what_has_no_price
from baobab.tools.call import Call
from baobab.tools.errors import BaobabError
from baobab.tools.types import JsonObject, Text

__all__ = ["messages"]

System = Annotated[str, Text(900_000)] | Annotated[list[JsonObject], Field(max_length=1000)]
_ELSEWHERE = frozenset(("fallbacks", "billing_policy", "thread", "workspace_id", "user_profile_id"))
# They mean nothing on this wire; translated, they would ask for more than was set aside.
_MORE = frozenset(("n", "max_completion_tokens"))
# Those whose words the vendor knows, and which the caller runs.
_RUN_BY_THE_CALLER = re.compile(r"custom|(?:bash|text_editor|memory|computer|computer_toolset|browser_toolset)_\d{8}")


@messages.tool(
    "POST /messages",
    access=GATEWAY_CALLERS,
    effect="external",
    raises=CALLING,
    audit=CALLED,
    query=("beta",),
    max_body=MOST_BYTES,
    examples={"max_tokens": 1024, "messages": [{"role": "user", "content": "Hello!"}]},
)
async def gateway_messages(
    call: Call,
    messages: Messages,
    max_tokens: MaxTokens,
    model: ModelName | None = None,
    system: System | None = None,
    stream: bool | None = None,
    beta: bool = False,  # noqa: ARG001 - what clients say, and nobody needs
    **further: Any,
) -> JsonObject:
    """Have a model answer a conversation, on the wire of Anthropic's Messages.

    Any model can be asked; fields that are not listed here are passed on. The key may come in `x-api-key`.

    messages: the conversation, each `{role, content}`.
    max_tokens: the most that the answer may have.
    model: left out, the platform's default.
    system: what the model is told before the conversation.
    stream: answer in server-sent events, where the door can.
    beta: as Anthropic's clients say it; it makes no difference.
    """
    refuse_what_has_no_price(
        further,
        elsewhere=_ELSEWHERE | _MORE,
        theirs=_runs_itself,
        known="`custom` and those of Anthropic's that the caller runs",
    )
    body = {"messages": messages, "max_tokens": max_tokens, **further}
    if system is not None:
        body["system"] = system
    answer: dict[str, Any] = await spoken(call, MESSAGES, body, model, max_tokens, _told, stream=stream)
    return answer


def _runs_itself(kind: Any) -> bool:
    return kind is None or (isinstance(kind, str) and _RUN_BY_THE_CALLER.fullmatch(kind) is not None)


def _told(error: BaobabError, _before: int) -> bytes:
    return event(MESSAGES_ENVELOPE.render(error, ""))
