"""Rules: parsed once, then evaluated with any values.

Rules mean the same as in JavaScript, with these exceptions: what would be NaN or Infinity there fails here; lists and
objects are equal when their contents are equal, and have no order; `cat` writes them as JSON.
"""

from collections.abc import Sequence
from typing import Any

from baobab.runtime.json_logic import names
from baobab.runtime.json_logic.context import EvaluationContext, RuleFailed, RuleInvalid
from baobab.runtime.json_logic.names import Name
from baobab.runtime.json_logic.operations import OPERATIONS, Operation, Run
from baobab.runtime.json_logic.values import is_true

MAX_DEPTH = 32
MAX_VALUES = 1000

_Path = tuple[str | int, ...]


class Rule:
    """A rule, parsed once.

    names: the names that it looks up in the data, in order, if `roots` are given; () is all of the data.
    """

    def __init__(self, rule: Any, roots: Sequence[str] | None = None) -> None:
        """Parses a rule. Raises RuleInvalid.

        roots: the first parts that names of the data may have. Names must then be literal, so that they are checked
        here, except in the rule for the items of a list.
        """
        parser = _Parser(roots)
        self._run = parser.parse_rule(rule, ())
        self.names = tuple(parser.names)

    def evaluate(self, data: Any) -> Any:
        """Evaluates the rule with the data, or with an EvaluationContext that rules share. Raises RuleFailed."""
        context = data if isinstance(data, EvaluationContext) else EvaluationContext(data)
        value = self._evaluate(context)
        # A small rule can make a list whose items are the same list, and so on: as JSON that would be without end.
        context.visit([value])
        return value

    def is_met(self, data: Any) -> bool:
        """Returns whether the rule's value counts as true: not null, false, 0, "" or []. Raises RuleFailed."""
        return is_true(self._evaluate(data if isinstance(data, EvaluationContext) else EvaluationContext(data)))

    def _evaluate(self, context: EvaluationContext) -> Any:
        try:
            return self._run(context)
        except RecursionError as exc:
            raise RuleFailed("a value is nested too deeply") from exc


class _Parser:
    def __init__(self, roots: Sequence[str] | None) -> None:
        self.names: list[Name] = []
        self._roots = roots
        self._remaining = MAX_VALUES
        self._lists = 0
        """The number of nested rules for items of lists that the parser is inside of."""

    def parse_rule(self, rule: Any, path: _Path, depth: int = 1) -> Run:
        self._count()
        if depth > MAX_DEPTH:
            raise RuleInvalid((), f"must be nested at most {MAX_DEPTH} deep")
        if isinstance(rule, list):
            items = [self.parse_rule(item, (*path, index), depth + 1) for index, item in enumerate(rule)]
            return lambda data: [item(data) for item in items]
        if isinstance(rule, dict):
            return self._parse_operation(rule, path, depth)
        return lambda _: rule

    def _parse_operation(self, rule: dict[str, Any], path: _Path, depth: int) -> Run:
        if len(rule) != 1:
            raise RuleInvalid(path, "an operation is an object with one key")
        ((operator, operand),) = rule.items()
        path = (*path, operator)
        # JSON-Logic lets a single argument stand without its list.
        arguments = operand if isinstance(operand, list) else [operand]
        if self._has_literal_names and operator in _WITH_LITERAL_NAMES:
            return _WITH_LITERAL_NAMES[operator](self, arguments, path, depth)
        operation = _ALL.get(operator)
        if operation is None:
            raise RuleInvalid(path, f"there is no such operation; there are {', '.join(_ALL)}")
        if not operation.least <= len(arguments) <= operation.most:
            raise RuleInvalid(path, _arity_message(operation, len(arguments)))
        if not isinstance(operand, list):
            runs = [self.parse_rule(operand, path, depth + 1)]
        else:
            runs = [
                self._parse_for_items(item, (*path, index), depth + 1)
                if operation.has_items and index == 1
                else self.parse_rule(item, (*path, index), depth + 1)
                for index, item in enumerate(operand)
            ]
        return lambda data: operation.run(runs, data)

    def _parse_for_items(self, rule: Any, path: _Path, depth: int) -> Run:
        """Parses a rule that is evaluated once for each item. Each time costs as many steps as the rule has values."""
        before = self._remaining
        self._lists += 1
        run = self.parse_rule(rule, path, depth)
        self._lists -= 1
        steps = before - self._remaining

        def run_once(data: EvaluationContext) -> Any:
            data.spend(steps)
            return run(data)

        return run_once

    @property
    def _has_literal_names(self) -> bool:
        return self._roots is not None and not self._lists

    def parse_literal_var(self, arguments: list[Any], path: _Path, depth: int) -> Run:
        if not 1 <= len(arguments) <= 2:
            raise RuleInvalid(path, "takes a name and, optionally, a default")
        name = self._parse_name(arguments[0], path)
        if len(arguments) == 1:
            return lambda data: names.look_up(name, data.values)
        default = self.parse_rule(arguments[1], (*path, 1), depth + 1)
        return lambda data: names.look_up_or(name, data, default)

    def parse_literal_missing(self, arguments: list[Any], path: _Path, _depth: int) -> Run:
        if len(arguments) == 1 and isinstance(arguments[0], list):
            arguments = arguments[0]
        parsed_names = [(text, self._parse_name(text, path)) for text in arguments]
        return lambda data: names.find_missing(parsed_names, data)

    def parse_literal_missing_some(self, arguments: list[Any], path: _Path, depth: int) -> Run:
        if len(arguments) != 2 or not isinstance(arguments[1], list):
            raise RuleInvalid(path, "takes a number and a list of names")
        read_needed_count = self.parse_rule(arguments[0], (*path, 0), depth + 1)
        parsed_names = [(text, self._parse_name(text, (*path, 1))) for text in arguments[1]]
        return lambda data: names.find_missing_some(read_needed_count(data), parsed_names, data)

    def _parse_name(self, text: Any, path: _Path) -> Name:
        """Parses a name, which must be literal text: a computed name could not be checked in advance."""
        self._count()
        if not isinstance(text, str):
            raise RuleInvalid(path, f'takes names as text, such as "{(self._roots or ("state",))[0]}.x"')
        name = names.split_name(text)
        if name and self._roots is not None and name[0] not in self._roots:
            raise RuleInvalid(path, "a name begins with " + " or ".join(f'"{root}"' for root in self._roots))
        self.names.append(name)
        return name

    def _count(self) -> None:
        self._remaining -= 1
        if self._remaining < 0:
            raise RuleInvalid((), f"must have at most {MAX_VALUES} values")


_WITH_LITERAL_NAMES = {
    "var": _Parser.parse_literal_var,
    "missing": _Parser.parse_literal_missing,
    "missing_some": _Parser.parse_literal_missing_some,
}
_ALL = {**names.OPERATIONS, **OPERATIONS}


def _arity_message(operation: Operation, count: int) -> str:
    if operation.least == operation.most:
        return f"takes {operation.least} argument{'s' if operation.least > 1 else ''}, not {count}"
    if count < operation.least:
        return f"takes at least {operation.least} argument{'s' if operation.least > 1 else ''}"
    return f"takes at most {operation.most} argument{'s' if operation.most > 1 else ''}"
