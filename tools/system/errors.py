"""The errors and their envelopes of what the contract has and this server has not yet."""

from typing import Any

from baobab.tools.core.envelopes import Envelope, Schema
from baobab.tools.core.errors import BaobabError, RouteNotFound


class NotBuilt(RouteNotFound):
    summary = "This path is not built yet."
    remediation = "docs/not-yet.md says what to use until then."


class NotHere(RouteNotFound):
    """A route of OpenAI's or Anthropic's API that this server does not have."""

    summary = "Not here."
    remediation = "docs/models.md lists the routes of OpenAI's and Anthropic's that are here."


class MeetingsNotBuilt(BaobabError):
    code = "provider_unavailable"
    status = 501
    summary = "This server has no provider of meetings: bots that join calls are not built yet."
    remediation = "Record the call yourself, and ingest its transcript with op:rag_ingest."


class PeopleNotBuilt(BaobabError):
    code = "people_unavailable"
    status = 503
    summary = "This server has no provider of people: the search for people and companies is not built yet."
    remediation = "Call a provider of your choice from your own server."


class FlatEnvelope(Envelope):
    """`{error: <code>, message, remediation}`."""

    name = "FlatError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        return {"error": self.code(type(error)), "message": error.message, "remediation": error.remedy}

    def schema(self) -> Schema:
        return {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


class MeetingsEnvelope(FlatEnvelope):
    """`{error: {message, type, code, remediation}}`, the form of the gateway."""

    name = "MeetingsError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        words = {"message": error.message, "remediation": error.remedy}
        return {"error": {**words, "type": "server_error", "code": self.code(type(error))}}


class OpenAiEnvelope(FlatEnvelope):
    """`{error: {message, type, code, param}}`, as OpenAI's clients read it."""

    name = "OpenAiRouteError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        words = {"message": f"{error.message} {error.remedy}", "remediation": error.remedy}
        return {"error": {**words, "type": "invalid_request_error", "code": self.code(type(error)), "param": None}}


class AnthropicEnvelope(FlatEnvelope):
    """`{type: "error", error: {type, message}}`, as Anthropic's clients read it."""

    name = "AnthropicRouteError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        words = {"message": f"{error.message} {error.remedy}", "remediation": error.remedy}
        return {"type": "error", "error": {"type": "not_found_error", **words, "code": self.code(type(error))}}
