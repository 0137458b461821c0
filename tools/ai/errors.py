"""The errors of this domain, and their envelopes in the form of OpenAI's and Anthropic's APIs (document 2)."""

from typing import Any

from baobab.tools.core import (
    AppNotFound,
    BadRequest,
    BaobabError,
    Conflict,
    Forbidden,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from baobab.tools.core.envelopes import Envelope, Schema
from baobab.tools.core.errors import (
    Internal,
    InvalidApiKey,
    InvalidToken,
    InvalidType,
    InvalidUserToken,
    MalformedBody,
    MissingField,
    UnknownField,
)
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted


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
        # Here the details and the remediation are part of the error object.
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
        required_names = ["message", "type", "code"]
        error_schema = {"type": "object", "properties": inner, "required": required_names}
        return {"type": "object", "properties": {"error": error_schema}, "required": ["error"]}


class MessagesEnvelope(AiEnvelope):
    """`{type: "error", error: {type, message, ...}}`, as Anthropic's clients read it."""

    name = "MessagesError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        inner = super().render(error, docs)["error"]
        return {"type": "error", "error": {**inner, "type": _message_kind(error.status)}}

    def schema(self) -> Schema:
        schema = super().schema()
        schema["properties"] = {"type": {"const": "error"}, **schema["properties"]}
        return {**schema, "required": ["type", "error"]}


class AppAiEnvelope(AiEnvelope):
    """The envelope for an app's routes, with another form if the app is missing or not the caller's."""

    name = "AppAiError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        fields = {"message": error.message, "remediation": error.remedy}
        if isinstance(error, AppNotFound):
            return {"error": "app_not_found", "code": error.code, **fields}
        if type(error) is Forbidden:
            return {"error": "forbidden", "code": "FORBIDDEN", **fields}
        return super().render(error, docs)

    def schema(self) -> Schema:
        return {"type": "object", "properties": {"error": {}}, "required": ["error"]}


def _kind(status: int) -> str:
    """Returns an error's type: the one that document 2 names, otherwise OpenAI's."""
    types = {401: "authentication_error", 402: "billing_error", 403: "permission_error", 429: "rate_limit_error"}
    return types.get(status, "api_error" if status >= 500 else "invalid_request_error")


def _message_kind(status: int) -> str:
    """Returns Anthropic's type of an error."""
    types = {404: "not_found_error", 413: "request_too_large", 503: "overloaded_error", 504: "timeout_error"}
    return types.get(status) or _kind(status)


AI_ENVELOPE, APP_AI_ENVELOPE, MESSAGES_ENVELOPE = AiEnvelope(), AppAiEnvelope(), MessagesEnvelope()


def conceal(error: CreditsExhausted | BudgetExhausted) -> None:
    """Removes the organisation's balance from the error, because the users of its apps must not see it."""
    error.details = {}
    error.message = error.summary
    error.remedy = "Contact the owner of this app."


class UnknownProvider(BadRequest):
    summary = "The key does not show which provider it is for."
    remediation = "Name the provider in `byokProvider`, such as `openai`. A key is sent only to its own provider."


class KeyOfAnother(BadRequest):
    summary = "This key begins like a key of another provider."
    remediation = "Set it for the provider that it belongs to. A key is sent only to its own provider."


class ModelNotUsable(BadRequest):
    summary = "The app cannot chat with this model."
    remediation = "op:ai_models lists the models that it can call."


class ProviderKeyNotFound(NotFound):
    summary = "Your organisation has no key for this provider."
    remediation = "op:provider_keys_list lists your organisation's keys."


class ServerNotFound(NotFound):
    summary = "Your organisation has no such model server."
    remediation = "op:model_servers_list lists your organisation's servers."


class ServerNameTaken(Conflict):
    summary = "This server name is taken."
    remediation = "Give the server another name."


class ServerChanged(Conflict):
    summary = "The server was changed by somebody else at the same time."
    remediation = "Read it with op:model_servers_get and try again."


class KeyNeededAgain(BadRequest):
    summary = "The stored key was given for another host, so it is not sent to the new one."
    remediation = "Send `key` with the new `url`: the key of the new host, or null for none."


class ItemNotFound(NotFound):
    code = "item_not_found"
    summary = "There is no such item here."
    remediation = (
        "Send the item itself in `input`. Stored responses and their items are kept for 30 days at most, "
        "and the oldest go first if there are too many."
    )


class ResponseNotFound(NotFound):
    code = "response_not_found"
    summary = "There is no such response here."
    remediation = (
        "Send the items of the conversation in `input`. Responses are kept for 30 days at most, "
        "and the oldest go first if there are too many."
    )
