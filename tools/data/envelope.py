"""The envelope of tables: the platform's own, with the fields that PostgREST's clients read beside it."""

import json
from typing import Any

from baobab.tools.core.envelopes import Schema, Structured
from baobab.tools.core.errors import BaobabError


class TablesEnvelope(Structured):
    """`{error: {...}, code, message, details, hint}`: `details` is the text of the error's details, or null."""

    name = "TablesError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        body = super().render(error, docs)
        inner = body["error"]
        details = json.dumps(inner["details"], ensure_ascii=False, default=str) if "details" in inner else None
        return {
            **body,
            "code": inner["code"],
            "message": inner["message"],
            "details": details,
            "hint": inner["remediation"],
        }

    def schema(self) -> Schema:
        schema = super().schema()
        text = {"type": "string"}
        properties = {
            **schema["properties"],
            "code": text,
            "message": text,
            "details": {"type": ["string", "null"]},
            "hint": text,
        }
        return {**schema, "properties": properties, "required": ["error", "code", "message", "details", "hint"]}
