"""Templates of payloads: `{{var}}` in texts is filled from a binding."""

import json
import re
from collections.abc import Mapping
from typing import Any

from baobab.runtime.json_logic.names import look_up, split_name
from baobab.runtime.work_budget import Budget, OverBudget

MAX_CHARACTERS = 500_000
"""Of all texts that a firing renders."""
_PLACEHOLDER = re.compile(r"\{\{[ \t]{0,20}([A-Za-z0-9_][A-Za-z0-9_.-]{0,200})[ \t]{0,20}\}\}")
_ABSENT = object()


class TemplateTooLarge(Exception):
    """The rendered payloads would be larger than a firing may make."""


class Renderer:
    """Renders the payloads of one firing, which share a bound. `missing`: the names that had no value."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self._budget = Budget(100_000, MAX_CHARACTERS)

    def render(self, template: Mapping[str, Any], binding: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the payload. Values that are not text are inserted as JSON, missing ones as nothing."""
        try:
            payload = self._render(template, binding)
        except OverBudget as exc:
            raise TemplateTooLarge from exc
        assert isinstance(payload, dict)
        return payload

    def _render(self, part: Any, binding: Mapping[str, Any]) -> Any:
        self._budget.spend()
        if isinstance(part, str):
            text = _PLACEHOLDER.sub(lambda match: self._fill(match[1], binding), part)
            self._budget.spend(0, len(text))
            return text
        if isinstance(part, Mapping):
            return {name: self._render(value, binding) for name, value in part.items()}
        if isinstance(part, list):
            return [self._render(item, binding) for item in part]
        return part

    def _fill(self, name: str, binding: Mapping[str, Any]) -> str:
        value = look_up(split_name(name), binding, _ABSENT)
        if value is _ABSENT:
            if name not in self.missing and len(self.missing) < 20:
                self.missing.append(name)
            return ""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        self._budget.spend(0, len(text))
        return text
