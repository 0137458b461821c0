"""Whether JSON contains other JSON, as Postgres's `@>`, `<@` and `&&` tell, in time that grows with what is given."""

from itertools import count
from typing import Any

from baobab.storage.sql.deadline import Check

_ASK_EVERY = 1024


class JsonSets:
    def __init__(self, check: Check) -> None:
        """check: called every thousand comparisons."""
        self._check = check
        self._comparisons = count(1)

    def contains(self, whole: Any, part: Any) -> bool:
        """Returns whether JSON contains other JSON. An array also contains a value that is not an array."""
        if isinstance(whole, dict) and isinstance(part, dict):
            return all(name in whole and self._contains_below(whole[name], value) for name, value in part.items())
        if isinstance(whole, list) and isinstance(part, list):
            scalars = {_identify(item) for item in whole if not isinstance(item, dict | list)}
            nested_items = [item for item in whole if isinstance(item, dict | list)]
            return all(
                any(self._contains_below(item, element) for item in nested_items)
                if isinstance(element, dict | list)
                else _identify(element) in scalars
                for element in part
            )
        if isinstance(whole, list) and not isinstance(part, dict):
            sought_value = _identify(part)
            return any(not isinstance(item, dict | list) and _identify(item) == sought_value for item in whole)
        return self._is_same(whole, part)

    def overlaps(self, left: list[Any], right: list[Any]) -> bool:
        """Returns whether two arrays have an item in common that is not null."""
        scalars = {_identify(item) for item in left if item is not None and not isinstance(item, dict | list)}
        nested_items = [item for item in left if isinstance(item, dict | list)]
        return any(
            any(self._is_same(item, other) for item in nested_items)
            if isinstance(other, dict | list)
            else _identify(other) in scalars
            for other in right
        )

    def _contains_below(self, whole: Any, part: Any) -> bool:
        if next(self._comparisons) % _ASK_EVERY == 0:
            self._check()
        if isinstance(whole, dict | list) and type(whole) is type(part):
            return self.contains(whole, part)
        return self._is_same(whole, part)

    def _is_same(self, left: Any, right: Any) -> bool:
        if next(self._comparisons) % _ASK_EVERY == 0:
            self._check()
        if isinstance(left, dict | list) or isinstance(right, dict | list):
            return bool(left == right)
        return _identify(left) == _identify(right)


def _identify(value: Any) -> tuple[bool, Any]:
    """Returns what tells scalars apart. In Python, True equals 1."""
    return isinstance(value, bool), value
