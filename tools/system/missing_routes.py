"""Finds the missing feature that a path belongs to: the contract's, OpenAI's or Anthropic's."""

from baobab.tools.system.errors import AnthropicEnvelope, NotHere, OpenAiEnvelope
from baobab.tools.system.unbuilt import UNBUILT, Unbuilt

_OPENAI, _ANTHROPIC = OpenAiEnvelope(), AnthropicEnvelope()
_APP = "/v1/{app_id}"


def _openai(what: str, until_then: str, *paths: str) -> Unbuilt:
    return Unbuilt(what, tuple(f"/v1/{path}" for path in paths), until_then, NotHere, _OPENAI)


# In an app only paths below those of tools: others may be those of a table.
VENDOR_ROUTES = (
    Unbuilt(
        "batches of messages",
        ("/v1/messages/batches", f"{_APP}/messages/batches", f"{_APP}/v1/messages/batches"),
        "Send the messages one by one (op:gateway_messages).",
        NotHere,
        _ANTHROPIC,
    ),
    Unbuilt(
        "the items of a stored response",
        ("/v1/responses/{id}/input_items", f"{_APP}/responses/{{id}}/input_items"),
        "Continue the response with `previous_response_id` (op:gateway_responses), or keep the items yourself.",
        NotHere,
        _OPENAI,
    ),
    Unbuilt(
        "background responses, their compaction and counting",
        (
            "/v1/responses/{id}/cancel",
            "/v1/responses/input_tokens",
            "/v1/responses/compact",
            f"{_APP}/responses/{{id}}/cancel",
            f"{_APP}/responses/input_tokens",
            f"{_APP}/responses/compact",
        ),
        "Read the answer as a stream (op:gateway_responses); op:gateway_messages_count counts tokens.",
        NotHere,
        _OPENAI,
    ),
    _openai("speech and transcription", "Call a provider of speech from your own server.", "audio"),
    _openai(
        "images in OpenAI's form",
        "In an app, op:images_generate makes images.",
        "images/generations",
        "images/edits",
        "images/variations",
    ),
    _openai("text completions", "Use op:gateway_chat.", "completions"),
    _openai("moderation", "Ask a model (op:gateway_chat).", "moderations"),
    _openai(
        "conversations at the provider",
        "Continue with `previous_response_id` (op:gateway_responses).",
        "conversations",
    ),
    _openai(
        "files of the provider",
        "Put pictures and documents into the messages, or keep files in an app (op:files_put).",
        "files",
        "uploads",
        "containers",
    ),
    _openai("batches", "Send the requests one by one (op:gateway_chat).", "batches"),
    _openai(
        "fine-tuning",
        "Fine-tune the model at its provider, and call it by its name with your own key (op:provider_keys_set).",
        "fine_tuning",
    ),
    _openai("vector stores", "Use the collections of an app (op:rag_ingest, op:rag_query).", "vector_stores"),
    _openai("assistants", "Use the agents of an app (op:agents_create).", "assistants", "threads"),
    _openai("realtime sessions", "Read a stream of op:gateway_chat.", "realtime"),
    _openai("rankings", "Use the collections of an app (op:rag_query).", "rerank"),
    _openai("evaluations", "Run them with your own client.", "evals"),
)

_PATTERNS = [(tuple(path[1:].split("/")), unbuilt) for unbuilt in (*UNBUILT, *VENDOR_ROUTES) for path in unbuilt.paths]
# The rest is looked at only if one of these is in the path.
_FIXED = frozenset(pattern[-1] for pattern, _ in _PATTERNS)


def find_unbuilt(path: str) -> Unbuilt | None:
    """Returns the missing feature to which a path belongs."""
    segments = path[1:].split("/")
    if _FIXED.isdisjoint(segments):
        return None
    for pattern, unbuilt in _PATTERNS:
        if len(segments) >= len(pattern) and all(
            part == segment or part.startswith("{") for part, segment in zip(pattern, segments, strict=False)
        ):
            return unbuilt
    return None
