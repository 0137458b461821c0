"""How this family words errors: as OpenAI's clients read them (document 2)."""

from typing import Any

from baobab.tools.core.credits import BudgetExhausted, CreditsExhausted
from baobab.tools.core.envelopes import Envelope, Schema
from baobab.tools.core.errors import (
    AppNotFound,
    BadRequest,
    BaobabError,
    Conflict,
    Forbidden,
    Internal,
    InvalidApiKey,
    InvalidToken,
    InvalidType,
    InvalidUserToken,
    MalformedBody,
    MissingField,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
    UnknownField,
)


class ModelNotAllowed(Forbidden):
    code = "MODEL_NOT_ALLOWED"
    summary = "The app does not allow this model."
    remediation = "Use one of the app's allowedModels, or have its owner change them."


class AiEnvelope(Envelope):
    """`{error: {message, type, code, ...}}`."""

    name = "AiError"
    details_at = "error."

    def __init__(self) -> None:
        super().__init__(
            {
                BadRequest: "invalid_request",
                InvalidType: "invalid_request",
                MalformedBody: "invalid_request",
                MissingField: "invalid_request",
                UnknownField: "invalid_request",
                BudgetExhausted: "insufficient_credits",
                CreditsExhausted: "insufficient_credits",
                Forbidden: "insufficient_scope",
                Internal: "internal_error",
                InvalidApiKey: "invalid_api_key",
                InvalidToken: "invalid_api_key",
                InvalidUserToken: "invalid_api_key",
                NotFound: "model_not_found",
                RateLimited: "rate_limit_exceeded",
                Unauthenticated: "missing_credentials",
                Unavailable: "service_unavailable",
            }
        )

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        # What other envelopes hold apart stands in the error itself here.
        remedy = self.place_details(error.remedy)
        inner = {
            **error.details,
            "message": f"{error.message} {remedy}",
            "remediation": remedy,
            "type": _kind(error.status),
            "code": self.code(type(error)),
        }
        faults = error.details.get("fields")
        return {"error": {"param": faults[0]["field"] if faults else None, **inner}}

    def schema(self) -> Schema:
        text = {"type": "string"}
        inner = {"message": text, "type": text, "code": text, "param": {"type": ["string", "null"]}}
        required = ["message", "type", "code"]
        told = {"type": "object", "properties": inner, "required": required}
        return {"type": "object", "properties": {"error": told}, "required": ["error"]}


class MessagesEnvelope(AiEnvelope):
    """`{type: "error", error: {type, message, ...}}`, as Anthropic's clients read it."""

    name = "MessagesError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        inner = super().render(error, docs)["error"]
        return {"type": "error", "error": {**inner, "type": _message_kind(error.status)}}

    def schema(self) -> Schema:
        told = super().schema()
        told["properties"] = {"type": {"const": "error"}, **told["properties"]}
        return {**told, "required": ["type", "error"]}


class AppAiEnvelope(AiEnvelope):
    """The same for an app's routes, which say in words of their own that the app is not the caller's, or not there."""

    name = "AppAiError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        told = {"message": error.message, "remediation": error.remedy}
        if isinstance(error, AppNotFound):
            return {"error": "app_not_found", "code": error.code, **told}
        if type(error) is Forbidden:
            return {"error": "forbidden", "code": "FORBIDDEN", **told}
        return super().render(error, docs)

    def schema(self) -> Schema:
        return {"type": "object", "properties": {"error": {}}, "required": ["error"]}


def _kind(status: int) -> str:
    """The types that document 2 names, and OpenAI's for the one that it does not."""
    named = {401: "authentication_error", 402: "billing_error", 403: "permission_error", 429: "rate_limit_error"}
    return named.get(status, "api_error" if status >= 500 else "invalid_request_error")


def _message_kind(status: int) -> str:
    """Anthropic's types."""
    named = {404: "not_found_error", 413: "request_too_large", 503: "overloaded_error", 504: "timeout_error"}
    return named.get(status) or _kind(status)


AI_ENVELOPE, APP_AI_ENVELOPE, MESSAGES_ENVELOPE = AiEnvelope(), AppAiEnvelope(), MessagesEnvelope()


def conceal(error: CreditsExhausted | BudgetExhausted) -> None:
    """What an organisation has is not for the users of its apps to know."""
    error.details = {}
    error.message = error.summary
    error.remedy = "Whoever runs this app must see to it."


class UnknownProvider(BadRequest):
    summary = "Nobody can tell which provider this key is for."
    remediation = "Name it in `byokProvider`, such as `openai`: a key is shown to its own provider only."


class KeyOfAnother(BadRequest):
    summary = "This key is another provider's, by how it begins."
    remediation = "Put it to the provider that it is for: a key is shown to its own provider only."


class ModelNotUsable(BadRequest):
    summary = "The app cannot chat with this model."
    remediation = "op:ai_models lists the models that it can call."


class ProviderKeyNotFound(NotFound):
    summary = "Your organisation has no key for this provider."
    remediation = "op:provider_keys_list lists those that it has."


class ServerNotFound(NotFound):
    summary = "Your organisation has no such model server."
    remediation = "op:model_servers_list lists those that it has."


class ServerNameTaken(Conflict):
    summary = "This name is taken: models of this server would be taken for somebody else's."
    remediation = "Give the server another name."


class ServerChanged(Conflict):
    summary = "Somebody else has changed the server meanwhile."
    remediation = "Read it with op:model_servers_get and try again."


class KeyNeededAgain(BadRequest):
    summary = "The key was given for another host: it is not shown to this one."
    remediation = "Send `key` with the new `url`: the key of the new host, or null for none."


class ItemNotFound(NotFound):
    code = "item_not_found"
    summary = "There is no such item here."
    remediation = (
        "Send the item itself in `input`: those of stored responses are kept for 30 days, unless too many come."
    )


class ResponseNotFound(NotFound):
    code = "response_not_found"
    summary = "There is no such response here."
    remediation = (
        "Send the items of the conversation in `input`: responses are stored for 30 days, unless too many come."
    )
