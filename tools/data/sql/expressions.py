"""Expressions of a statement: each kind of node that may be there is written here, in the SQL of the database.

What no method writes is refused, so what reaches a database is made of the texts in this module and in `functions.py`,
of checked names, and of placeholders.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from baobab.storage.data.store import DataStore
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import SqlInvalid, SqlNotAllowed
from baobab.tools.data.sql.functions import SqlFunction, find_function
from baobab.tools.data.sql.names import Columns, Scope, read_name, refuse, take_args
from baobab.tools.data.sql.pieces import BOOLEAN, INSTANT, JSON, NUMERIC, TEXT, Piece, compose, join
from baobab.tools.data.sql.values import Given, Values, is_numeric
from baobab.tools.data.values.column_types import ColumnType, UnknownType, parse_type
from baobab.tools.data.values.temporal_values import shift_moment

_COMPARISONS = {
    "EQ": "=",
    "NEQ": "<>",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "NullSafeEQ": "IS NOT DISTINCT FROM",
    "NullSafeNEQ": "IS DISTINCT FROM",
}
_OF_SQLITE = {"IS NOT DISTINCT FROM": "IS", "IS DISTINCT FROM": "IS NOT"}
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
_EXACT = ("+", "-", "*")
_MOST_LISTED = 1000
_ESCAPES = frozenset("!#$%&*+,-./:;<=>@^_|~")
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}
_CAST_TYPES = frozenset(
    "text varchar smallint integer bigint real numeric boolean uuid date timestamp timestamptz json jsonb".split()  # noqa: SIM905 - shorter
) | {"double precision"}
_FRAME_SIDES = {"preceding": "PRECEDING", "following": "FOLLOWING"}


class Queries(Protocol):
    """Writes the queries within expressions."""

    def write_subquery(self, node: Any, scope: Scope) -> tuple[Piece, Columns]: ...


class ExpressionWriter:
    def __init__(self, store: DataStore, app_id: str, actor: Actor, now: str, values: Values, queries: Queries) -> None:
        self.is_sqlite = store.dialect == "sqlite"
        self.values = values
        self._fold = "fold" if self.is_sqlite else store.name_table(app_id, "_fold")
        self._actor = actor
        self._now = now
        self._queries = queries

    def write(self, node: Any, scope: Scope, expected: ColumnType | None = None) -> Piece:
        """Writes an expression.

        expected: the type that a value would have in its place.
        """
        constant = self.values.find(node)
        if constant is not None:
            return self.values.write(constant, expected)
        kind = type(node).__name__
        if kind in _COMPARISONS:
            return self._compare(node, scope)
        if kind in _ARITHMETIC:
            return self._calculate(node, scope, _ARITHMETIC[kind])
        writer = self._writers.get(kind)
        if writer is not None:
            return writer(self, node, scope)
        function = find_function(node)
        if function is None:
            raise refuse(node)
        return self._call(node, function, scope)

    def condition(self, node: Any, scope: Scope) -> Piece:
        piece = self.write(node, scope, BOOLEAN)
        if piece.kind not in (BOOLEAN, None):
            raise SqlInvalid("A condition is true or false, and this one is something else.")
        return piece

    # Columns and names.

    def _column(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "table")
        if type(node.this).__name__ == "Star":
            raise SqlInvalid("`*` stands only in the list of columns, and in `count(*)`.")
        alias = read_name(arguments["table"]) if arguments.get("table") else None
        return scope.find_column(read_name(node.this), alias)

    def _paren(self, node: Any, scope: Scope) -> Piece:
        inner = self.write(take_args(node, "this")["this"], scope)
        return compose("({})", inner, kind=inner.kind).of(inner.kind, is_computed=inner.is_computed)

    def _dot(self, node: Any, scope: Scope) -> Piece:
        del scope
        called_node = node.expression
        is_call = node.this.name == "auth" and type(called_node).__name__ == "Anonymous"
        if not is_call or called_node.name.lower() != "uid" or called_node.expressions:
            raise refuse(node)
        return self._write_user()

    def _user(self, node: Any, scope: Scope) -> Piece:
        del scope
        take_args(node)
        return self._write_user()

    def _write_user(self) -> Piece:
        return Piece("?" if self.is_sqlite else "?::text", (self._actor.user_id,), TEXT)

    # Conditions.

    def _connect(self, node: Any, scope: Scope) -> Piece:
        word = type(node).__name__.upper()
        parts: list[Any] = []
        while type(node).__name__.upper() == word:
            arguments = take_args(node, "this", "expression")
            parts.append(arguments["expression"])
            node = arguments["this"]
        pieces = [self.condition(part, scope) for part in [node, *reversed(parts)]]
        return compose("({})", join(f" {word} ", pieces), kind=BOOLEAN)

    def _not(self, node: Any, scope: Scope) -> Piece:
        return compose("(NOT {})", self.condition(take_args(node, "this")["this"], scope), kind=BOOLEAN)

    def _compare(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "expression")
        operator = _COMPARISONS[type(node).__name__]
        listed_nodes = self._list_quantified(node, operator)
        if listed_nodes is not None:
            left, nodes = arguments["this"], listed_nodes
            return self._among(left, nodes, scope, is_negated=operator == "<>")
        if self.is_sqlite:
            operator = _OF_SQLITE.get(operator, operator)
        left, right = self.pair(arguments["this"], arguments["expression"], scope)
        return compose(f"({{}} {operator} {{}})", left, right, kind=BOOLEAN)

    def pair(self, left_node: Any, right_node: Any, scope: Scope) -> tuple[Piece, Piece]:
        """Writes two values that are compared. Raises SqlInvalid if their types cannot be."""
        left, right = self._write_compared([left_node, right_node], scope)
        return left, right

    def _write_compared(self, nodes: Sequence[Any], scope: Scope) -> list[Piece]:
        """Writes values of which the first is compared with each other one."""
        pieces = self._write_all(nodes, scope)
        for piece in pieces[1:]:
            _require_comparable(pieces[0].kind, piece.kind)
        return [self._plain(piece) for piece in pieces]

    def _write_all(self, nodes: Sequence[Any], scope: Scope) -> list[Piece]:
        """Writes values that have one type: that of the first one which is no plain value. Each is written once,
        because what is written twice within itself would take for ever.
        """
        constants = [node if isinstance(node, Given) else self.values.find(node) for node in nodes]
        others = [
            None if constant is not None else self.write(node, scope)
            for node, constant in zip(nodes, constants, strict=True)
        ]
        known_piece = next((piece for piece in others if piece is not None), None)
        kind = known_piece.kind if known_piece is not None else None
        pieces: list[Piece] = []
        for piece, constant in zip(others, constants, strict=True):
            if constant is None:
                assert piece is not None
                pieces.append(piece)
                continue
            written_piece = self.values.write(constant, kind)
            # A value that is compared with a computed number is written as a text, as that number is.
            pieces.append(
                self.exact(written_piece) if known_piece is not None and known_piece.is_computed else written_piece
            )
        return pieces

    def _plain(self, piece: Piece) -> Piece:
        """Returns a value as it compares. SQLite computes exact numbers as texts."""
        if self.is_sqlite and piece.is_computed:
            return compose("exact_number({})", piece, kind=piece.kind)
        return piece

    def exact(self, piece: Piece) -> Piece:
        """Returns a value that a function has computed. On SQLite, an exact number has lost its order by that."""
        return piece.of(piece.kind, is_computed=self.is_sqlite and is_numeric(piece.kind))

    def collate(self, piece: Piece) -> Piece:
        """Returns a value that is sorted, or that others name: on SQLite, an exact number with its order."""
        if self.is_sqlite and piece.is_computed:
            return compose("({} COLLATE decimal)", piece, kind=piece.kind)
        return piece

    def _list_quantified(self, node: Any, operator: str) -> list[Any] | None:
        """Returns the values of `= any(...)` or `<> all(...)`; None if the node is neither."""
        right = node.expression
        name = type(right).__name__
        if name == "Any":
            is_all, inner = False, right.this
        elif name == "Anonymous" and right.name.lower() == "all" and len(right.expressions) == 1:
            is_all, inner = True, right.expressions[0]
        else:
            return None
        while type(inner).__name__ in ("Paren", "Cast"):
            inner = inner.this
        if (operator, is_all) not in (("=", False), ("<>", True)):
            raise refuse(node, "but `= any($1)` and `<> all($1)`")
        constant = self.values.find(inner)
        if constant is not None and isinstance(constant.value, list):
            return [Given(value) for value in constant.value]
        if type(inner).__name__ == "Array":
            return list(take_args(inner, "expressions").get("expressions") or ())
        raise SqlNotAllowed("`any` and `all` take a list that `params` gives: `id = any($1)`.")

    def _in(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "expressions", "query")
        if arguments.get("query") is None:
            return self._among(arguments["this"], arguments["expressions"], scope, is_negated=False)
        left = self.write(arguments["this"], scope)
        query, columns = self._queries.write_subquery(arguments["query"], scope)
        if len(columns) != 1:
            raise SqlInvalid("The query of `in` has one column.")
        _require_comparable(left.kind, next(iter(columns.values())).kind)
        return compose("({} IN ({}))", self._plain(left), query, kind=BOOLEAN)

    def _among(self, left_node: Any, nodes: Sequence[Any], scope: Scope, *, is_negated: bool) -> Piece:
        if len(nodes) > _MOST_LISTED:
            raise SqlInvalid(f"A list has at most {_MOST_LISTED} values.")
        if not nodes:
            self.write(left_node, scope)
            return Piece("TRUE" if is_negated else "FALSE", kind=BOOLEAN)
        left, *items = self._write_compared([left_node, *nodes], scope)
        word = "NOT IN" if is_negated else "IN"
        return compose(f"({{}} {word} ( {{}}))", left, join(", ", items), kind=BOOLEAN)

    def _between(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "low", "high")
        if any(type(part).__name__ == "Between" for part in arguments["this"].walk()):
            # Postgres writes the value twice, and what is in it, too.
            raise SqlNotAllowed("`between` does not stand within the value of another `between`.")
        value, low, high = self._write_compared([arguments[name] for name in ("this", "low", "high")], scope)
        return compose("({} BETWEEN {} AND {})", value, low, high, kind=BOOLEAN)

    def _is(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "expression", "negate")
        constant = self.values.find(arguments["expression"])
        if constant is None or not (constant.value is None or isinstance(constant.value, bool)):
            raise refuse(node)
        word = "NULL" if constant.value is None else str(constant.value).upper()
        left = self.write(arguments["this"], scope, BOOLEAN if word != "NULL" else None)
        return compose(f"({{}} IS {'NOT ' if arguments.get('negate') else ''}{word})", left, kind=BOOLEAN)

    def _like(self, node: Any, scope: Scope, escape: str = "\\") -> Piece:
        arguments = take_args(node, "this", "expression", "negate")
        value = self.write(arguments["this"], scope, TEXT)
        pattern = self.write(arguments["expression"], scope, TEXT)
        for piece in (value, pattern):
            if piece.kind is not None and not piece.kind.is_text:
                raise SqlInvalid(f"`like` compares texts, and this is {piece.kind}.")
        fold = self._fold if type(node).__name__ == "ILike" else ""
        words = "NOT LIKE" if arguments.get("negate") else "LIKE"
        return compose(f"({fold}({{}}) {words} {fold}({{}}) ESCAPE '{escape}')", value, pattern, kind=BOOLEAN)

    def _escape(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "expression")
        constant = self.values.find(arguments["expression"])
        if (
            type(arguments["this"]).__name__ not in ("Like", "ILike")
            or constant is None
            or constant.value not in _ESCAPES
        ):
            raise refuse(node)
        return self._like(arguments["this"], scope, constant.value)

    def _exists(self, node: Any, scope: Scope) -> Piece:
        query, _ = self._queries.write_subquery(take_args(node, "this")["this"], scope)
        return compose("EXISTS ({})", query, kind=BOOLEAN)

    def _subquery(self, node: Any, scope: Scope) -> Piece:
        query, columns = self._queries.write_subquery(node, scope)
        if len(columns) != 1:
            raise SqlInvalid("A query that stands for a value has one column.")
        [(kind, _)] = columns.values()
        if self.is_sqlite and is_numeric(kind):
            # The result of a subquery has no collation there.
            return compose("(({}) COLLATE decimal)", query, kind=kind)
        return compose("({})", query, kind=kind)

    def _case(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "ifs", "default")
        results = [take_args(each, "this", "true")["true"] for each in arguments["ifs"]]
        has_default = arguments.get("default") is not None
        pieces = self.alike([*results, *([arguments["default"]] if has_default else [])], scope)
        tests = [each.this for each in arguments["ifs"]]
        if arguments.get("this") is not None:
            value, *others = self._write_compared([arguments["this"], *tests], scope)
            conditions = [compose("({} = {})", value, other) for other in others]
        else:
            conditions = [self.condition(test, scope) for test in tests]
        parts = [
            compose("WHEN {} THEN {}", condition, piece) for condition, piece in zip(conditions, pieces, strict=False)
        ]
        if has_default:
            parts.append(compose("ELSE {}", pieces[-1]))
        return self.exact(compose("(CASE {} END)", join(" ", parts), kind=pieces[0].kind))

    # Numbers, texts and moments.

    def _calculate(self, node: Any, scope: Scope, operator: str) -> Piece:
        arguments = take_args(node, "this", "expression", "typed", "safe")
        left_node, right_node = arguments["this"], arguments["expression"]
        if (
            type(right_node).__name__ in ("Interval", "Cast")
            and (seconds := self._read_interval(right_node)) is not None
        ):
            if type(left_node).__name__ != "CurrentTimestamp" or operator not in "+-":
                raise refuse(node, "because an interval is only added to `now()`, or taken from it")
            return self._write_moment(seconds if operator == "+" else -seconds)
        left, right = self.write(left_node, scope), self.write(right_node, scope)
        for piece in (left, right):
            if piece.kind is not None and not piece.kind.is_number:
                raise SqlInvalid(f"`{operator}` takes numbers, and this is {piece.kind}.")
        is_exact = is_numeric(left.kind) or is_numeric(right.kind)
        if is_exact and self.is_sqlite and operator in _EXACT:
            return compose(f"exact('{operator}', {{}}, {{}})", left, right).of(NUMERIC, is_computed=True)
        kind = NUMERIC if is_exact and not self.is_sqlite else None
        return compose(f"({{}} {operator} {{}})", self._plain(left), self._plain(right), kind=kind)

    def _negate(self, node: Any, scope: Scope) -> Piece:
        inner = self.write(take_args(node, "this")["this"], scope)
        if inner.kind is not None and not inner.kind.is_number:
            raise SqlInvalid(f"`-` takes a number, and this is {inner.kind}.")
        return compose("(- {})", self._plain(inner))

    def _concat(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "expression", "safe")
        return compose("({} || {})", *(self.text(arguments[name], scope) for name in ("this", "expression")), kind=TEXT)

    def text(self, node: Any, scope: Scope) -> Piece:
        """Writes a value as a text."""
        piece = self.write(node, scope)
        if piece.kind is not None and (piece.kind.is_json or piece.kind.name in ("vector", "bytea", "boolean")):
            raise SqlInvalid(f"{piece.kind} is not joined to a text: cast it, or take a part of it with `->>`.")
        if piece.kind is not None and piece.kind.is_text:
            return piece
        return compose("CAST({} AS TEXT)", piece, kind=TEXT)

    def _read_interval(self, node: Any) -> int | None:
        """Returns the seconds of an interval; None if the node is none."""
        if type(node).__name__ == "Cast":
            if node.args["to"].this.name != "INTERVAL":
                return None
            constant = self.values.find(node.this)
            amount, _, unit = str(constant.value if constant else "").strip().partition(" ")
        else:
            arguments = take_args(node, "this", "unit")
            constant = self.values.find(arguments["this"]) if arguments.get("this") is not None else None
            amount, unit = (
                str(constant.value if constant else ""),
                arguments["unit"].name if arguments.get("unit") else "",
            )
        seconds = _SECONDS.get(unit.strip().upper().removesuffix("S"))
        if seconds is None or not amount.lstrip("-").isdigit() or len(amount) > 7:
            raise SqlNotAllowed("An interval is a whole number of seconds, minutes, hours, days or weeks.")
        return int(amount) * seconds

    def _now_moment(self, node: Any, scope: Scope) -> Piece:
        del scope
        take_args(node, "this")
        return self._write_moment(0)

    def _write_moment(self, seconds: int) -> Piece:
        try:
            moment = shift_moment(self._now, seconds)
        except (OverflowError, ValueError) as exc:
            raise SqlInvalid("That moment is too far away.") from exc
        return Piece("?" if self.is_sqlite else "?::timestamptz", (moment,), INSTANT)

    def _today(self, node: Any, scope: Scope) -> Piece:
        del scope
        take_args(node)
        return Piece("?" if self.is_sqlite else "?::date", (self._now[:10],), ColumnType("date"))

    def _cast(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "to")
        kind = _read_type(arguments["to"])
        constant = self.values.find(arguments["this"])
        if constant is not None:
            if kind.is_text and constant.value is not None and not isinstance(constant.value, str):
                return compose("CAST({} AS TEXT)", self.values.write(constant, None), kind=TEXT)
            return self.values.write(constant, kind)
        inner = self._plain(self.write(arguments["this"], scope))
        if not self.is_sqlite:
            return compose(f"({{}})::{kind.cast_name}", inner, kind=kind)
        return self._cast_on_sqlite(inner, kind)

    def _cast_on_sqlite(self, inner: Piece, kind: ColumnType) -> Piece:
        if kind.is_integer:
            return compose("CAST(round({}) AS INTEGER)", inner, kind=kind)
        if kind.is_number:
            is_exact = kind.name == "numeric"
            piece = compose("exact('+', {}, 0)" if is_exact else "CAST({} AS REAL)", inner)
            return piece.of(kind, is_computed=is_exact)
        if kind.name == "date" and inner.kind is not None and inner.kind.name.startswith("timestamp"):
            return compose("substr({}, 1, 10)", inner, kind=kind)
        family = inner.kind.family() if inner.kind is not None else None
        if kind.is_text and family != "boolean":
            return compose("CAST({} AS TEXT)", inner, kind=TEXT)
        if family == kind.family():
            return inner.of(kind)
        raise SqlNotAllowed(f"On this database, {inner.kind or 'such a value'} is not cast to {kind}.")

    def _json(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "expression", "only_json_types")
        value = self.write(arguments["this"], scope)
        if value.kind is not None and value.kind.name not in ("json", "jsonb"):
            raise SqlInvalid(f"`->` and `->>` lead into JSON, and this is {value.kind}.")
        as_text = type(node).__name__ == "JSONExtractScalar"
        steps = self._read_steps(arguments["expression"], node)
        for number, step in enumerate(steps):
            arrow = "->>" if as_text and number == len(steps) - 1 else "->"
            value = self._step(value, step, arrow)
        return value.of(TEXT if as_text else JSON)

    def _read_steps(self, node: Any, whole: Any) -> list[str | int]:
        constant = self.values.find(node)
        if constant is not None:
            if isinstance(constant.value, bool) or not isinstance(constant.value, str | int):
                raise SqlInvalid("A step into JSON is a name or a number.")
            return [constant.value]
        if type(node).__name__ != "JSONPath":
            raise refuse(whole)
        steps = [step.this for step in node.expressions[1:]]
        kinds = {type(step).__name__ for step in node.expressions[1:]}
        if kinds - {"JSONPathKey", "JSONPathSubscript"} or not all(isinstance(step, str | int) for step in steps):
            raise refuse(whole)
        return steps

    def _step(self, value: Piece, step: str | int, arrow: str) -> Piece:
        if not self.is_sqlite:
            place = Piece("?::int" if isinstance(step, int) else "?::text", (step,))
            return compose(f"({{}} {arrow} {{}})", value, place)
        place = Piece("?", (step,))
        inner = compose("({} -> {})" if isinstance(step, int) else "json_member({}, {})", value, place)
        return compose("json_as_text({})", inner) if arrow == "->>" else inner

    # Functions.

    def _call(self, node: Any, function: SqlFunction, scope: Scope) -> Piece:
        arguments = take_args(node, *function.names, *function.ignored)
        if "this" in function.names and arguments.get("this") is None:
            raise SqlInvalid(f"`{function.sql_name}` needs a value.")
        return function.write(self, scope, arguments)

    def alike(self, nodes: Sequence[Any], scope: Scope) -> list[Piece]:
        """Writes values of which one is chosen, which have one type."""
        pieces = self._write_all(nodes, scope)
        kind = next((piece.kind for piece in pieces if piece.kind is not None), None)
        for piece in pieces:
            if kind is not None and piece.kind is not None and piece.kind.family() != kind.family():
                raise SqlInvalid(f"{kind} and {piece.kind} are not values of one type: cast one of them.")
        return [piece.of(kind, is_computed=piece.is_computed) for piece in pieces]

    def number(self, node: Any, scope: Scope) -> Piece:
        """Writes a value that is a number."""
        piece = self.write(node, scope)
        if piece.kind is not None and not piece.kind.is_number:
            raise SqlInvalid(f"A function takes a number, and this is {piece.kind}.")
        return self._plain(piece)

    def moment(self, node: Any, scope: Scope) -> Piece:
        """Writes a value that is a moment or a day."""
        piece = self.write(node, scope, INSTANT)
        if piece.kind is None or piece.kind.name not in ("timestamptz", "timestamp", "date"):
            raise SqlInvalid("A function takes a moment or a day: cast it, such as `$1::timestamptz`.")
        return piece

    def json_value(self, node: Any, scope: Scope) -> Piece:
        """Writes a value that becomes a part of JSON."""
        piece = self.write(node, scope)
        if not self.is_sqlite or piece.kind is None:
            return piece
        if piece.kind.is_json:
            return compose("json({})", piece)
        if piece.kind.name == "boolean":
            return compose("json(CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END)", piece)
        return piece

    def _filter(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "expression")
        function = find_function(arguments["this"])
        if function is None or not function.is_aggregate:
            raise refuse(node)
        inner = self.write(arguments["this"], scope)
        where = self.condition(take_args(arguments["expression"], "this")["this"], scope)
        piece = compose("{} FILTER (WHERE {})", inner, where)
        return piece.of(inner.kind, is_computed=inner.is_computed)

    def _window(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "partition_by", "order", "spec", "over")
        inner_node = arguments["this"]
        called_node = inner_node.this if type(inner_node).__name__ == "Filter" else inner_node
        function = find_function(called_node)
        if function is None or not (function.is_aggregate or function.is_window):
            raise refuse(node)
        inner = (
            self._filter(inner_node, scope)
            if called_node is not inner_node
            else self._call(inner_node, function, scope)
        )
        parts: list[Piece] = []
        if arguments.get("partition_by"):
            groups = join(", ", [self.write(each, scope) for each in arguments["partition_by"]])
            parts.append(compose("PARTITION BY {}", groups))
        if arguments.get("order"):
            orders = [self.order(each, scope) for each in take_args(arguments["order"], "expressions")["expressions"]]
            parts.append(compose("ORDER BY {}", join(", ", orders)))
        if arguments.get("spec"):
            parts.append(self._frame(arguments["spec"]))
        piece = compose("{} OVER ({})", inner, join(" ", parts))
        return piece.of(inner.kind, is_computed=inner.is_computed)

    def _frame(self, node: Any) -> Piece:
        arguments = take_args(node, "kind", "start", "start_side", "end", "end_side")
        kind = str(arguments["kind"]).upper()
        if kind not in ("ROWS", "RANGE"):
            raise refuse(node)
        start = self._frame_end(node, arguments.get("start"), arguments.get("start_side"))
        if not arguments.get("end"):
            return Piece(f"{kind} {start}")
        return Piece(f"{kind} BETWEEN {start} AND {self._frame_end(node, arguments['end'], arguments.get('end_side'))}")

    def _frame_end(self, node: Any, place: Any, side: Any) -> str:
        if str(place).upper() == "CURRENT ROW":
            return "CURRENT ROW"
        word = _FRAME_SIDES.get(str(side).lower())
        if word is None:
            raise refuse(node)
        if str(place).upper() == "UNBOUNDED":
            return f"UNBOUNDED {word}"
        constant = self.values.find(place)
        if constant is None or isinstance(constant.value, bool) or not isinstance(constant.value, int):
            raise refuse(node)
        return f"{abs(constant.value)} {word}"

    def order(self, node: Any, scope: Scope, written_piece: Piece | None = None) -> Piece:
        """Writes one part of an order, with empty values where Postgres puts them.

        written: its expression, where that has been written.
        """
        arguments = take_args(node, "this", "desc", "nulls_first")
        piece = written_piece or self._plain(self.write(arguments["this"], scope))
        direction = "DESC" if arguments.get("desc") else "ASC"
        nulls = "FIRST" if arguments.get("nulls_first") else "LAST"
        return compose(f"{{}} {direction} NULLS {nulls}", piece, kind=piece.kind)

    _writers: Mapping[str, Callable[["ExpressionWriter", Any, Scope], Piece]] = {
        "Column": _column,
        "Paren": _paren,
        "Dot": _dot,
        "CurrentUserId": _user,
        "And": _connect,
        "Or": _connect,
        "Not": _not,
        "In": _in,
        "Between": _between,
        "Is": _is,
        "Like": _like,
        "ILike": _like,
        "Escape": _escape,
        "Exists": _exists,
        "Subquery": _subquery,
        "Case": _case,
        "Neg": _negate,
        "DPipe": _concat,
        "CurrentTimestamp": _now_moment,
        "CurrentDate": _today,
        "Cast": _cast,
        "JSONExtract": _json,
        "JSONExtractScalar": _json,
        "Filter": _filter,
        "Window": _window,
    }

    def write_role(self) -> Piece:
        return Piece("?" if self.is_sqlite else "?::text", (self._actor.user_role,), TEXT)

    @property
    def fold(self) -> str:
        """The name of the function that turns all letters into small ones."""
        return self._fold


def _require_comparable(left: ColumnType | None, right: ColumnType | None) -> None:
    for kind in (left, right):
        if kind is not None and (kind.is_json or kind.name in ("vector", "bytea", "interval", "timetz")):
            raise SqlInvalid(f"Values of {kind} are not compared: compare a part of them, such as `data->>'name'`.")
    if left is not None and right is not None and left.family() != right.family():
        raise SqlInvalid(f"{left} is not compared with {right}: cast one of them, such as `id::text`.")


def _read_type(node: Any) -> ColumnType:
    if type(node).__name__ != "DataType" or node.args.get("nested"):
        raise refuse(node)
    try:
        kind = parse_type(node.sql(dialect="postgres").lower())
    except UnknownType as exc:
        raise SqlNotAllowed(f"A statement may not cast to `{node.sql(dialect='postgres')[:40]}`.") from exc
    if kind.name not in _CAST_TYPES or kind.array or kind.serial:
        raise refuse(node)
    if kind.size is not None:
        raise SqlNotAllowed(f"Cast to `{kind.name}` without a size, and shorten or round the value with a function.")
    return kind
