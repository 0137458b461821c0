"""The errors and their envelopes of what the contract has and this server has not yet."""

from typing import Any

from baobab.tools.core import BaobabError, Conflict
from baobab.tools.core.envelopes import Envelope, Schema
from baobab.tools.core.errors import RouteNotFound


class NotBuilt(RouteNotFound):
    summary = "This path is not built yet."
    remediation = "docs/not-yet.md says what to use until then."


class SourceNotBuilt(RouteNotFound):
    """Builds from source: they are made elsewhere, by a recipe that is documented."""

    code = "NOT_IMPLEMENTED"
    status = 501
    summary = "This server does not build sites from source."
    remediation = (
        "Build where your code is, for example in continuous integration, and send a zip of the result with "
        "op:sites_create; docs/sites.md has the recipe."
    )


class NotHere(RouteNotFound):
    """A route of OpenAI's or Anthropic's API that this server does not have."""

    summary = "Not here."
    remediation = "docs/models.md lists the routes of OpenAI's and Anthropic's that are here."


class ChoiceMissing(Conflict):
    code = "COPY_CHOICE_MISSING"
    summary = "Jobs wait in this copy from before it was made, and the original may have done them."
    remediation = (
        "Read them with op:system_installation. Then call again with `waiting`: `drop` leaves undone what can be left "
        "undone, `run` does everything here, too."
    )


class FlatEnvelope(Envelope):
    """`{error: <code>, message, remediation}`."""

    name = "FlatError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        return {"error": self.code(type(error)), "message": error.message, "remediation": error.remedy}

    def schema(self) -> Schema:
        return {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


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
