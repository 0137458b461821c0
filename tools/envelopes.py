"""Envelopes: how one family of operations words an error. The error says what; the family says how."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.errors import BaobabError

Schema = dict[str, Any]


class Envelope:
    """The base. `codes` renames errors for this family, nearest class first; the others keep their own code."""

    name = "structured"

    def __init__(self, codes: Mapping[type[BaobabError], str] | None = None) -> None:
        self._codes = dict(codes or {})

    def code(self, kind: type[BaobabError]) -> str:
        for ancestor in kind.__mro__:
            if ancestor in self._codes:
                return self._codes[ancestor]
            if "code" in ancestor.__dict__:
                break
        return kind.code

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        """The body of an error; `docs` is the address of the error pages."""
        raise NotImplementedError

    def schema(self) -> Schema:
        raise NotImplementedError


class Structured(Envelope):
    """`{error: {code, message, remediation, documentation_url, details?}}`: the platform's own shape."""

    name = "StructuredError"

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
                **inner, details={"type": "object"}, required=("code", "message", "remediation", "documentation_url")
            )
        )


class Flat(Envelope):
    """`{error: <message>, code, remediation, details?}`: the older groups, whose `error` is a sentence."""

    name = "FlatError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        body = {"error": error.message, "code": self.code(type(error)), "remediation": error.remedy}
        return body | ({"details": error.details} if error.details else {})

    def schema(self) -> Schema:
        text = {"type": "string"}
        return _object(error=text, code=text, remediation=text, details={"type": "object"}, required=("error", "code"))


def _object(required: tuple[str, ...] | None = None, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required or properties)}


STRUCTURED = Structured()
FLAT = Flat()
