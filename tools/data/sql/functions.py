"""The functions that a statement may call, and how each database calls them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baobab.tools.data.errors import SqlInvalid, SqlNotAllowed
from baobab.tools.data.sql.names import Scope, refuse, take_args
from baobab.tools.data.sql.pieces import BOOLEAN, INTEGER, JSON, NUMERIC, TEXT, Piece, compose, join
from baobab.tools.data.sql.values import is_numeric
from baobab.tools.data.values.column_types import ColumnType

if TYPE_CHECKING:
    from baobab.tools.data.sql.expressions import ExpressionWriter

    Write = Callable[["ExpressionWriter", Scope, Mapping[str, Any]], Piece]

_BIGGEST_REPLACEMENT = 100
_DOUBLE = ColumnType("double precision")
_FIELDS = {"YEAR": "%Y", "MONTH": "%m", "DAY": "%d", "HOUR": "%H", "MINUTE": "%M", "SECOND": "%S", "DOW": "%w"}
_TRUNCATED = {
    "YEAR": "%Y-01-01T00:00:00",
    "MONTH": "%Y-%m-01T00:00:00",
    "DAY": "%Y-%m-%dT00:00:00",
    "HOUR": "%Y-%m-%dT%H:00:00",
    "MINUTE": "%Y-%m-%dT%H:%M:00",
    "SECOND": "%Y-%m-%dT%H:%M:%S",
}
_TRIMS = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """names: of its arguments, as the parser calls them. ignored: what the parser notes besides. sql_name: how Postgres
    calls a column that is this function's value. own_names: the functions of SQLite that it calls.
    """

    sql_name: str
    names: tuple[str, ...]
    write: "Write"
    own_names: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    is_aggregate: bool = False
    is_window: bool = False


def find_function(node: Any) -> SqlFunction | None:
    """Returns the function that a node calls; None if it is none, or none that may be called."""
    name = type(node).__name__
    if name == "Anonymous":
        return _BY_NAME.get(str(node.this).lower())
    return _BY_NODE.get(name)


def list_own_names() -> frozenset[str]:
    """Returns the functions of SQLite that statements may call."""
    functions = (*_BY_NODE.values(), *_BY_NAME.values())
    return frozenset(name for function in functions for name in function.own_names)


def _plain(
    on_postgres: str, on_sqlite: str, *names: str, kind: ColumnType | None = None, texts: Sequence[str] = ()
) -> "Write":
    """Returns how a function is written whose arguments are all needed.

    texts: the arguments that are texts.
    """

    def write(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
        parts: list[Piece] = []
        for name in names:
            node = arguments.get(name)
            if node is None or isinstance(node, list):
                raise SqlInvalid(f"A function lacks its argument {len(parts) + 1}.")
            parts.append(writer.text(node, scope) if name in texts else writer.number(node, scope))
        return compose(on_sqlite if writer.is_sqlite else on_postgres, *parts, kind=kind)

    return write


def _fold(name: str) -> "Write":
    def write(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
        called_name = writer.fold if name == "lower" else name
        return compose(f"{called_name}({{}})", writer.text(arguments["this"], scope), kind=TEXT)

    return write


def _length(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    return compose("length({})", writer.text(arguments["this"], scope), kind=INTEGER)


def _coalesce(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    pieces = writer.alike([arguments["this"], *(arguments.get("expressions") or ())], scope)
    if len(pieces) < 2:
        return pieces[0]
    return writer.exact(compose("coalesce({})", join(", ", pieces), kind=pieces[0].kind))


def _nullif(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    left, right = writer.pair(arguments["this"], arguments["expression"], scope)
    return writer.exact(compose("nullif({}, {})", left, right, kind=left.kind))


def _extreme(word: str) -> "Write":
    """`greatest` and `least`, which pass over nulls."""

    def write(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
        pieces = writer.alike([arguments["this"], *(arguments.get("expressions") or ())], scope)
        if not writer.is_sqlite:
            return compose(f"{word}({{}})", join(", ", pieces), kind=pieces[0].kind)
        if len(pieces) != 2 or is_numeric(pieces[0].kind):
            raise SqlNotAllowed(f"On this database, `{word}` takes two values that are no `numeric`: write `case`.")
        name = "max" if word == "greatest" else "min"
        return compose(f"{name}(coalesce({{0}}, {{1}}), coalesce({{1}}, {{0}}))", *pieces, kind=pieces[0].kind)

    return write


def _round(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    value = writer.number(arguments["this"], scope)
    decimals = 0
    if arguments.get("decimals") is not None:
        constant = writer.values.find(arguments["decimals"])
        if (
            constant is None
            or isinstance(constant.value, bool)
            or not isinstance(constant.value, int)
            or abs(constant.value) > 30
        ):
            raise SqlInvalid("`round` takes a whole number of decimals, from 0 to 30, as its second value.")
        decimals = abs(constant.value)
    template = f"exact_round({{}}, {decimals})" if writer.is_sqlite else f"round(({{}})::numeric, {decimals})"
    return compose(template, value).of(NUMERIC, is_computed=writer.is_sqlite)


def _trim(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    name = _TRIMS[str(arguments.get("position") or "")]
    name = "btrim" if name == "trim" and not writer.is_sqlite else name
    parts = [writer.text(arguments["this"], scope)]
    if arguments.get("expression") is not None:
        parts.append(writer.text(arguments["expression"], scope))
    return compose(f"{name}({{}})", join(", ", parts), kind=TEXT)


def _substring(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    parts = [writer.text(arguments["this"], scope)]
    parts += [writer.number(arguments[name], scope) for name in ("start", "length") if arguments.get(name) is not None]
    return compose("substr({})", join(", ", parts), kind=TEXT)


def _right(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    text, count = writer.text(arguments["this"], scope), writer.number(arguments["expression"], scope)
    if writer.is_sqlite:
        return compose("substr({0}, max(length({0}) - {1}, 0) + 1)", text, count, kind=TEXT)
    return compose("right({}, {})", text, count, kind=TEXT)


def _replace(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    constant = writer.values.find(arguments["replacement"]) if arguments.get("replacement") is not None else None
    if constant is None or not isinstance(constant.value, str) or len(constant.value) > _BIGGEST_REPLACEMENT:
        raise SqlNotAllowed(
            f"`replace` takes a value of at most {_BIGGEST_REPLACEMENT} characters as its replacement, because its "
            "result would otherwise have no bound."
        )
    parts = [writer.text(arguments[name], scope) for name in ("this", "expression")]
    return compose("replace({}, {}, {})", *parts, writer.values.write(constant, TEXT), kind=TEXT)


def _concat(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    pieces = [compose("coalesce({}, '')", writer.text(node, scope)) for node in arguments["expressions"]]
    return compose("({})", join(" || ", pieces), kind=TEXT)


def _extract(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    word = str(arguments["this"].name).upper()
    if word not in _FIELDS:
        raise SqlNotAllowed(f"`extract` takes {', '.join(_FIELDS).lower()}.")
    moment = writer.moment(arguments["expression"], scope)
    if writer.is_sqlite:
        return compose(f"CAST(strftime('{_FIELDS[word]}', {{}}) AS INTEGER)", moment, kind=INTEGER)
    # Without fractions of a second, as SQLite has it.
    return compose(f"floor(extract({word} FROM {{}}))::integer", moment, kind=INTEGER)


def _truncate(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    word = str(arguments["unit"].name).upper()
    if word not in _TRUNCATED:
        raise SqlNotAllowed(f"`date_trunc` takes {', '.join(_TRUNCATED).lower()}.")
    moment = writer.moment(arguments["this"], scope)
    if not writer.is_sqlite:
        return compose(f"date_trunc('{word.lower()}', {{}})", moment, kind=moment.kind)
    zone = "+00:00" if moment.kind is not None and moment.kind.name == "timestamptz" else ""
    return compose(f"strftime('{_TRUNCATED[word]}{zone}', {{}})", moment, kind=moment.kind)


def _uuid(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    del writer, scope, arguments
    return Piece("gen_random_uuid()", kind=ColumnType("uuid"))


def _role(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    del scope
    if arguments.get("expressions"):
        raise SqlInvalid("`current_user_role()` takes no value.")
    return writer.write_role()


def _build_object(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    nodes = arguments.get("expressions") or []
    if len(nodes) % 2:
        raise SqlInvalid("`json_build_object` takes names and values in turn.")
    parts: list[Piece] = []
    for place, node in enumerate(nodes):
        piece = writer.text(node, scope) if place % 2 == 0 else writer.json_value(node, scope)
        parts.append(piece)
    name = "json_object" if writer.is_sqlite else "jsonb_build_object"
    return compose(f"{name}({{}})", join(", ", parts), kind=JSON)


# Aggregates.


def _count(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    node = arguments["this"]
    if type(node).__name__ == "Star":
        take_args(node)
        return Piece("count(*)")
    return compose("count({})", _operand(writer, scope, node)[0])


def _operand(writer: "ExpressionWriter", scope: Scope, node: Any) -> tuple[Piece, Piece]:
    """Returns the operand of an aggregate, with its DISTINCT, and without."""
    if type(node).__name__ != "Distinct":
        piece = writer.write(node, scope)
        return piece, piece
    expressions = take_args(node, "expressions")["expressions"]
    if len(expressions) != 1:
        raise refuse(node)
    piece = writer.write(expressions[0], scope)
    return compose("DISTINCT {}", piece), piece


def _sum(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    operand, piece = _operand(writer, scope, arguments["this"])
    _require_number("sum", piece)
    if not writer.is_sqlite:
        return compose("sum({})", operand, kind=NUMERIC if is_numeric(piece.kind) else None)
    if is_numeric(piece.kind):
        return compose("decimal_sum({})", operand).of(NUMERIC, is_computed=True)
    return compose("sum({})", operand)


def _avg(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    node = arguments["this"]
    if type(node).__name__ == "Distinct":
        raise SqlNotAllowed("`avg(distinct ...)` is not offered: take it of a query with `distinct`.")
    piece = writer.write(node, scope)
    _require_number("avg", piece)
    real = "CAST({} AS REAL)" if writer.is_sqlite else "({})::double precision"
    return compose(f"avg({real})", piece, kind=_DOUBLE)


def _require_number(name: str, piece: Piece) -> None:
    if piece.kind is not None and not piece.kind.is_number:
        raise SqlInvalid(f"`{name}` takes numbers, and this is {piece.kind}.")


def _edge(name: str) -> "Write":
    def write(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
        if type(arguments["this"]).__name__ == "Distinct":
            raise SqlInvalid(f"`{name}` of distinct values is that of all values: leave `distinct` out.")
        piece = writer.write(arguments["this"], scope)
        if piece.kind is not None and not piece.kind.is_ordered:
            raise SqlInvalid(f"`{name}` takes values that have an order, and this is {piece.kind}.")
        if piece.kind is not None and piece.kind.name in ("uuid", "boolean"):
            raise SqlInvalid(f"`{name}` does not take {piece.kind}: cast it to text.")
        return writer.exact(compose(f"{name}({{}})", writer.collate(piece), kind=piece.kind))

    return write


def _string_agg(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    if type(arguments["this"]).__name__ in ("Distinct", "Order"):
        raise SqlNotAllowed("`string_agg` takes neither `distinct` nor `order by`: order or narrow a query within it.")
    if arguments.get("separator") is None:
        raise SqlInvalid("`string_agg` takes a text and a separator.")
    parts = [writer.text(arguments[name], scope) for name in ("this", "separator")]
    return compose(f"{'group_concat' if writer.is_sqlite else 'string_agg'}({{}}, {{}})", *parts, kind=TEXT)


def _json_agg(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    node = arguments.get("this") or (arguments.get("expressions") or [None])[0]
    if node is None or len(arguments.get("expressions") or ()) > 1:
        raise SqlInvalid("`json_agg` takes one value.")
    if type(node).__name__ in ("Distinct", "Order"):
        raise SqlNotAllowed("`json_agg` takes neither `distinct` nor `order by`: order or narrow a query within it.")
    name = "json_group_array" if writer.is_sqlite else "jsonb_agg"
    return compose(f"{name}({{}})", writer.json_value(node, scope), kind=JSON)


def _every(on_postgres: str, on_sqlite: str) -> "Write":
    def write(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
        operand = writer.condition(arguments["this"], scope)
        return compose(f"{on_sqlite if writer.is_sqlite else on_postgres}({{}})", operand, kind=BOOLEAN)

    return write


# Functions of windows.


def _number_rows(name: str) -> "Write":
    def write(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
        del writer, scope, arguments
        return Piece(f"{name}()")

    return write


def _neighbour(name: str) -> "Write":
    def write(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
        value = writer.write(arguments["this"], scope)
        parts = [value]
        if arguments.get("offset") is not None:
            constant = writer.values.find(arguments["offset"])
            if constant is None or isinstance(constant.value, bool) or not isinstance(constant.value, int):
                raise SqlInvalid(f"`{name}` takes a whole number of rows.")
            parts.append(Piece(str(max(-(10**6), min(10**6, constant.value)))))
        if arguments.get("default") is not None:
            parts.append(writer.write(arguments["default"], scope, value.kind))
        return writer.exact(compose(f"{name}({{}})", join(", ", parts), kind=value.kind))

    return write


def _ntile(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
    return compose("ntile({})", writer.number(arguments["this"], scope), kind=INTEGER)


def _end_of_frame(name: str) -> "Write":
    def write(writer: "ExpressionWriter", scope: Scope, arguments: Mapping[str, Any]) -> Piece:
        value = writer.write(arguments["this"], scope)
        return writer.exact(compose(f"{name}({{}})", value, kind=value.kind))

    return write


_T, _E = "this", "expression"
_BY_NODE: Mapping[str, SqlFunction] = {
    "Lower": SqlFunction("lower", (_T,), _fold("lower"), ("fold",)),
    "Upper": SqlFunction("upper", (_T,), _fold("upper"), ("upper",)),
    "Length": SqlFunction("length", (_T,), _length, ("length",)),
    "Abs": SqlFunction("abs", (_T,), _plain("abs({})", "absolute({})", _T), ("absolute",)),
    "Coalesce": SqlFunction("coalesce", (_T, "expressions"), _coalesce, ("coalesce",)),
    "Nullif": SqlFunction("nullif", (_T, _E), _nullif, ("nullif",)),
    "Greatest": SqlFunction(
        "greatest", (_T, "expressions"), _extreme("greatest"), ("max", "coalesce"), ("ignore_nulls",)
    ),
    "Least": SqlFunction("least", (_T, "expressions"), _extreme("least"), ("min", "coalesce"), ("ignore_nulls",)),
    "Round": SqlFunction("round", (_T, "decimals"), _round, ("exact_round", "round")),
    "Trim": SqlFunction("btrim", (_T, "position", _E), _trim, ("trim", "ltrim", "rtrim")),
    "Substring": SqlFunction("substring", (_T, "start", "length"), _substring, ("substr",)),
    "Left": SqlFunction(
        "left", (_T, _E), _plain("left({}, {})", "substr({}, 1, {})", _T, _E, kind=TEXT, texts=(_T,)), ()
    ),
    "Right": SqlFunction("right", (_T, _E), _right, ("max",)),
    "Replace": SqlFunction("replace", (_T, _E, "replacement"), _replace, ("replace",)),
    "StrPosition": SqlFunction(
        "strpos",
        (_T, "substr"),
        _plain("strpos({}, {})", "instr({}, {})", _T, "substr", kind=INTEGER, texts=(_T, "substr")),
        ("instr",),
    ),
    "Concat": SqlFunction("concat", ("expressions",), _concat, (), ("safe", "coalesce")),
    "Extract": SqlFunction("extract", (_T, _E), _extract, ("strftime",)),
    "TimestampTrunc": SqlFunction("date_trunc", (_T, "unit"), _truncate, ("strftime",)),
    "Uuid": SqlFunction("gen_random_uuid", (), _uuid, ("gen_random_uuid",)),
    "Count": SqlFunction("count", (_T,), _count, ("count",), ("big_int",), is_aggregate=True),
    "Sum": SqlFunction("sum", (_T,), _sum, ("sum", "decimal_sum"), is_aggregate=True),
    "Avg": SqlFunction("avg", (_T,), _avg, ("avg",), is_aggregate=True),
    "Min": SqlFunction("min", (_T,), _edge("min"), ("min",), is_aggregate=True),
    "Max": SqlFunction("max", (_T,), _edge("max"), ("max",), is_aggregate=True),
    "GroupConcat": SqlFunction("string_agg", (_T, "separator"), _string_agg, ("group_concat",), is_aggregate=True),
    "JSONArrayAgg": SqlFunction("json_agg", (_T,), _json_agg, ("json_group_array", "json", "iif"), is_aggregate=True),
    "ArrayAgg": SqlFunction("array_agg", (_T,), _json_agg, ("json_group_array",), is_aggregate=True),
    "LogicalAnd": SqlFunction("bool_and", (_T,), _every("bool_and", "min"), ("min",), is_aggregate=True),
    "LogicalOr": SqlFunction("bool_or", (_T,), _every("bool_or", "max"), ("max",), is_aggregate=True),
    "RowNumber": SqlFunction("row_number", (), _number_rows("row_number"), ("row_number",), is_window=True),
    "Rank": SqlFunction("rank", (), _number_rows("rank"), ("rank",), is_window=True),
    "DenseRank": SqlFunction("dense_rank", (), _number_rows("dense_rank"), ("dense_rank",), is_window=True),
    "Ntile": SqlFunction("ntile", (_T,), _ntile, ("ntile",), is_window=True),
    "Lag": SqlFunction("lag", (_T, "offset", "default"), _neighbour("lag"), ("lag",), is_window=True),
    "Lead": SqlFunction("lead", (_T, "offset", "default"), _neighbour("lead"), ("lead",), is_window=True),
    "FirstValue": SqlFunction("first_value", (_T,), _end_of_frame("first_value"), ("first_value",), is_window=True),
    "LastValue": SqlFunction("last_value", (_T,), _end_of_frame("last_value"), ("last_value",), is_window=True),
}
_EXPRESSIONS = (_T, "expressions")
_BY_NAME: Mapping[str, SqlFunction] = {
    "current_user_role": SqlFunction("current_user_role", _EXPRESSIONS, _role, ()),
    "json_build_object": SqlFunction("json_build_object", _EXPRESSIONS, _build_object, ("json_object",)),
    "jsonb_build_object": SqlFunction("jsonb_build_object", _EXPRESSIONS, _build_object, ("json_object",)),
    "jsonb_agg": SqlFunction(
        "jsonb_agg",
        _EXPRESSIONS,
        lambda writer, scope, arguments: _json_agg(writer, scope, {"expressions": arguments.get("expressions")}),
        ("json_group_array",),
        is_aggregate=True,
    ),
}
