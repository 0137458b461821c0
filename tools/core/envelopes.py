"""Envelopes: the form that an error has in a toolset. The error says what happened; the envelope, in which fields."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.core.errors import BaobabError

Schema = dict[str, Any]


class Envelope:
    """The base. `codes` renames errors for a toolset, nearest class first; the others keep their own code."""

    name = "structured"
    details_at = ""
    """The prefix of a detail's name in texts, which says in which field of the body it is."""

    def __init__(self, codes: Mapping[type[BaobabError], str] | None = None) -> None:
        self._codes = dict(codes or {})

    def code(self, kind: type[BaobabError]) -> str:
        for ancestor in kind.__mro__:
            if ancestor in self._codes:
                return self._codes[ancestor]
            if "code" in ancestor.__dict__:
                break
        return kind.code

    def place_details(self, remedy: str) -> str:
        """Returns a remedy that names details as this envelope does: `details.limit`, `error.limit` or `limit`."""
        return remedy.replace("details.", self.details_at)

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        """Returns the body of an error. docs: the address of the error pages."""
        raise NotImplementedError

    def schema(self) -> Schema:
        raise NotImplementedError


class Structured(Envelope):
    """`{error: {code, message, remediation, documentation_url, details?}}`: the platform's own shape."""

    name = "StructuredError"
    details_at = "details."

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        code = self.code(type(error))
        body: dict[str, Any] = {
            "code": code,
            "message": error.message,
            "remediation": error.remedy,
            "documentation_url": f"{docs}/errors#{code.lower().replace('_', '-')}",
        }
        if error.details:
            body["details"] = error.details
        return {"error": body}

    def schema(self) -> Schema:
        text = {"type": "string"}
        inner = {"code": text, "message": text, "remediation": text, "documentation_url": text}
        return _object(
            error=_object(
                **inner,
                details={"type": "object"},
                required_names=("code", "message", "remediation", "documentation_url"),
            )
        )


class PlanEnvelope(Envelope):
    """`{error: <slug>, message, remediation, current, limit, upgradeUrl, ...}`: what a plan has no room for."""

    name = "PlanError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        code = self.code(type(error))
        remedy = self.place_details(error.remedy)
        words = {"error": code, "code": code, "message": error.message, "remediation": remedy}
        return {**words, **error.details, "upgradeUrl": f"{docs}/guides/settings#plans"}

    def schema(self) -> Schema:
        text, number = {"type": "string"}, {"type": "integer"}
        texts = dict.fromkeys(("error", "code", "message", "remediation", "plan", "what", "upgradeUrl"), text)
        return _object(None, **texts, limit=number, current=number)


def _object(required_names: tuple[str, ...] | None = None, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required_names or properties)}


STRUCTURED = Structured()
PLAN_ENVELOPE = PlanEnvelope()


def envelope_for(family: Envelope, kind: type[BaobabError]) -> Envelope:
    """Returns the envelope of an error: that of its toolset, except for limits of a plan."""
    return PLAN_ENVELOPE if kind.flat else family
