"""The Responses API, the newer of OpenAI's wire formats."""

from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.wires.chunks import encode_named_event
from baobab.runtime.gateway.wires.responses import RESPONSES
from baobab.tools.ai import conversations
from baobab.tools.ai.bases import OPENAI
from baobab.tools.ai.conversations import open_conversation
from baobab.tools.ai.errors import AI_ENVELOPE, ItemNotFound, ResponseNotFound
from baobab.tools.ai.model_choice import preview_model
from baobab.tools.ai.schemas import Deleted
from baobab.tools.ai.timeouts import FROM_HEADERS, TimeoutHeader
from baobab.tools.ai.tools.chat import MaxTokens, ModelName
from baobab.tools.ai.toolset import CALLED, CALLING, MOST_BYTES
from baobab.tools.ai.unpriced import without_unpriced
from baobab.tools.ai.wire_answers import answer_on_wire
from baobab.tools.core import Audit, BaobabError, Call, Guard, JsonObject, Rest, Text
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.core.limits.limits import GATEWAY_REQUESTS
from baobab.tools.core.types import AnyJsonObject

Input = Annotated[
    Annotated[str, Text(900_000, min_length=1, nul=True)]
    | Annotated[list[AnyJsonObject], Field(min_length=1, max_length=10_000)],
    Field(description="A text, or the items of a conversation, which may be longer."),
]
ResponseId = Annotated[str, Text(200, min_length=1), Field(description="The `id` of a response.")]
# Fields that refer to data at the vendor, which is not the caller's.
_ELSEWHERE = {
    "conversation": "Send the items of the conversation in `input`, or `previous_response_id`.",
    "prompt": "Send the prompt's text in `instructions` or `input`.",
    "background": "Leave it out, and read the answer as a stream if it takes long.",
}
# This wire format does not have them; in a chat completion they would ask for more than was reserved.
_MORE = frozenset(("n", "max_tokens", "max_completion_tokens"))
_RUN_BY_THE_CALLER = frozenset(("function", "custom", "apply_patch", "local_shell", "computer", "computer_use_preview"))


@OPENAI.tool(
    "POST /responses",
    in_app="ai_responses",
    limit=GATEWAY_REQUESTS,
    effect="external",
    raises=(*CALLING, ResponseNotFound, ItemNotFound),
    audit=CALLED,
    rest=Rest(query=tuple(FROM_HEADERS), from_headers=FROM_HEADERS, max_body=MOST_BYTES, examples={"input": "Hello!"}),
    guard=Guard(preview=preview_model("chat")),
)
async def gateway_responses(
    call: Call,
    input: Input,
    model: ModelName | None = None,
    stream: bool | None = None,
    max_output_tokens: MaxTokens | None = None,
    previous_response_id: ResponseId | None = None,
    store: bool | None = None,
    baobab_timeout: TimeoutHeader | None = None,
    **further: Any,
) -> JsonObject:
    """Have a model answer, in the format of OpenAI's Responses API.

    You can call any model. Fields that are not listed here are passed on.

    input: a text, or the items of a conversation.
    model: if left out, the app's default model, or the server's.
    stream: answer with server-sent events. MCP always answers in one piece.
    max_output_tokens: the most tokens that the answer may have. If an app's maxTokensPerRequest is less, that applies.
    previous_response_id: the stored response that the conversation continues, from the same organisation or app.
    store: keep the conversation and the answer for 30 days; false keeps nothing.
    baobab_timeout: how long the call may take. Over REST you can also send the header `x-baobab-timeout`.
    """
    for field, remediation in _ELSEWHERE.items():
        if further.get(field):
            raise RequestRefused(
                f"`{field}` is not supported here.",
                remediation=remediation,
                details={"param": field},
            )
    further = without_unpriced(
        call,
        further,
        elsewhere=_MORE,
        is_own_kind=_runs_itself,
        known_kinds="`function`, `custom`, `namespace` and those of OpenAI's that the caller runs",
    )
    conversation = await open_conversation(call, input, previous_response_id, store=store is not False)
    body = {
        **further,
        "input": input if isinstance(input, str) and previous_response_id is None else conversation.items,
    }
    if max_output_tokens is not None:
        body["max_output_tokens"] = max_output_tokens
    answer: dict[str, Any] = await answer_on_wire(
        call,
        RESPONSES,
        body,
        model,
        max_output_tokens,
        _render_error,
        stream=stream,
        conversation=conversation,
        timeout_header=baobab_timeout,
    )
    return answer


@OPENAI.tool(
    "GET /responses/{response_id}",
    in_app="ai_response",
    effect="read",
    raises=(ResponseNotFound,),
    rest=Rest(examples={"response_id": "resp_0123456789abcdef01234567"}),
)
async def gateway_response(call: Call, response_id: ResponseId) -> JsonObject:
    """Read a stored response of the caller's organisation, or of the app."""
    return await conversations.get_response(call, response_id)


async def _preview_delete(call: Call, response_id: ResponseId, **_app: str) -> str:
    response = await conversations.get_response(call, response_id)
    return f"It would delete a stored response of the model {escape_name(str(response.get('model')))}."


@OPENAI.tool(
    "DELETE /responses/{response_id}",
    in_app="ai_response_delete",
    effect="destructive",
    raises=(ResponseNotFound,),
    audit=Audit("ai.response.delete", action="delete", resource="response"),
    rest=Rest(examples={"response_id": "resp_0123456789abcdef01234567"}),
    guard=Guard(preview=_preview_delete),
)
async def gateway_response_delete(call: Call, response_id: ResponseId) -> Deleted:
    """Delete a stored response. Responses that continue it keep the conversation before them."""
    await conversations.delete_response(call, response_id)
    call.audit.resource_id = response_id
    return {"id": response_id, "object": "response", "deleted": True}


def _runs_itself(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _RUN_BY_THE_CALLER


def _render_error(error: BaobabError, before: int) -> bytes:
    """Renders an error event. OpenAI's documentation and its clients differ, so the fields are in both places."""
    inner = AI_ENVELOPE.render(error, "")["error"]
    top_fields = {name: inner[name] for name in ("code", "message", "param")}
    return encode_named_event({"type": "error", **top_fields, "error": inner, "sequence_number": before})
