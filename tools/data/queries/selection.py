"""Reads the columns and related rows that a query selects:
`id,name:title,data->>size,author(id,name),comments(text)`.
"""

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from baobab.tools.core import BadRequest
from baobab.tools.data.errors import InvalidFilter
from baobab.tools.data.queries.aggregates import find_groups, read_aggregate
from baobab.tools.data.queries.filters import TEXT, Where, as_list, read_json_path, split_outside
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo
from baobab.tools.data.values.column_types import ColumnType
from baobab.tools.data.values.selection_items import Item

_ITEM = re.compile(r"(?:([^:(),\"!]+?):(?!:))?\"?([a-z_][a-z0-9_]*)\"?((?:->>?[^-:]+)*)(?:::([a-z0-9 ]+))?", re.DOTALL)
_EMBED = re.compile(r"(\.\.\.)?(?:([^:(),\"!]+?):)?([a-z_][a-z0-9_]*)((?:![a-z_][a-z0-9_]*)*)\((.*)\)", re.DOTALL)
_ORDER = re.compile(r"\"?([a-z_][a-z0-9_]*)\"?((?:->>?[^-.]+)*)((?:\.(?:asc|desc|nullsfirst|nullslast))*)")
_RELATED_ORDER = re.compile(r"([^:()\",]+)\(([^()]*)\)((?:\.(?:asc|desc|nullsfirst|nullslast))*)", re.DOTALL)
_DISTANCE = re.compile(r"([a-z_][a-z0-9_]*)\.(cosine|l2|inner)\.\{([^{}]*)\}")
_MOST_COLUMNS = 200
_MOST_ORDERS = 20
_MOST_EMBEDS = 20
"""The most related tables of one query, nested ones included. Each one is a statement of its own."""
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Order:
    """embed: the related row that has the value; None for a value of the row itself. type: of the value."""

    tree: Expression
    type: ColumnType
    descending: bool
    nulls_first: bool
    embed: "Embed | None" = None


@dataclass
class Embed:
    """The rows of another table that belong to a row.

    many: whether it is a list of rows that refer to this one by `theirs`, or one row: that which this one refers to by
    `ours`, or the only one that can refer to it. has_any: whether to return only rows that have related ones, or only
    those that have none; None for both. is_spread: whether the values of the related row become values of this one:
    `...author(name)`.

    An embed that selects nothing, `books()`, serves filters and orders only.
    """

    name: str
    many: bool
    ours: str
    theirs: str
    has_any: bool | None
    selection: "Selection"
    is_spread: bool = False

    @property
    def is_shown(self) -> bool:
        return bool(self.selection.items or self.selection.embeds)

    @property
    def names(self) -> list[str]:
        """The names by which the row has it."""
        return self.selection.names if self.is_spread or not self.is_shown else [self.name]


@dataclass
class Selection:
    table: TableInfo
    items: list[Item] = field(default_factory=list)
    embeds: list[Embed] = field(default_factory=list)
    groups: list[Item] | None = None
    """By what rows are grouped, if the items are aggregates of groups."""
    where: dict[str, list[str]] = field(default_factory=dict)
    order: str = ""
    limit: int | None = None
    offset: int = 0
    ignored_names: list[str] = field(default_factory=list)
    """What `select` names and the table does not have."""

    @property
    def names(self) -> list[str]:
        """The names of what each row has."""
        return [item.name for item in self.items] + [name for embed in self.embeds for name in embed.names]

    def find_embed(self, name: str) -> Embed | None:
        """Returns the embed that a filter of this name is about; None for a filter of a column."""
        if name in self.table.columns:
            return None
        return next((embed for embed in self.embeds if embed.name == name), None)

    def count_embeds(self) -> int:
        return sum(1 + embed.selection.count_embeds() for embed in self.embeds)

    def find(self, path: list[str]) -> "Selection":
        """Returns the selection of an embedded table by its name or path. Raises InvalidFilter if the query embeds no
        such table.
        """
        if not path:
            return self
        for embed in self.embeds:
            if path[0] in (embed.name, embed.selection.table.name):
                return embed.selection.find(path[1:])
        raise InvalidFilter(f"`{path[0][:63]}` is not a column, and the query embeds no table of this name.")


def read_selection(catalogue: Catalogue, table: TableInfo, text: str | None, depth: int = 0) -> Selection:
    """Unknown names are ignored. If no name is left, all columns are selected."""
    selection = Selection(table)
    if not text:
        selection.items = [*table.items]
        return selection
    parts = split_outside(text)
    if len(parts) > _MOST_COLUMNS:
        raise BadRequest(f"A query selects at most {_MOST_COLUMNS} columns.")
    for part in map(str.strip, parts):
        if aggregate := read_aggregate(table, part):
            selection.items.append(aggregate)
        elif "(" in part:
            selection.embeds.append(_read_embed(catalogue, table, part, depth))
        elif part == "*":
            selection.items += table.items
        elif item := _read_item(table, part):
            selection.items.append(item)
        elif part:
            selection.ignored_names.append(part)
    _require_names_apart(selection)
    if selection.count_embeds() > _MOST_EMBEDS:
        raise BadRequest(f"A query embeds at most {_MOST_EMBEDS} related tables.")
    if not selection.items and not selection.embeds:
        selection.items = [*table.items]
    selection.groups = find_groups(selection.items)
    if selection.groups is not None and selection.embeds:
        raise InvalidFilter(
            "Aggregates and related tables are not selected together.",
            remediation="Write the aggregates in the related table's parentheses, `books(count())`, or ask twice.",
        )
    return selection


def _require_names_apart(selection: Selection) -> None:
    """Raises InvalidFilter if a value of a related row would replace another value."""
    for embed in selection.embeds:
        if embed.is_spread:
            names = [name for name in selection.names if name in embed.names]
            if len(names) > len(embed.names):
                repeated_name = next(name for name in names if names.count(name) > 1)
                raise InvalidFilter(
                    f"`{repeated_name[:63]}` is selected twice, once by `...{embed.name}`.",
                    remediation=f"Give one of them another name: `...{embed.name}(other_name:{repeated_name[:63]})`.",
                )


def place_filters(selection: Selection, where: Where) -> None:
    """Assigns each filter, order and limit to its table: `comments.text=eq.x`, `comments.order=id`."""
    for name, value in where.items():
        path, _, last = name.rpartition(".")
        if name in ("not.and", "not.or") or not path:
            path, last = "", name
        elif path.endswith(".not") or path == "not":
            path, last = path[:-4], f"not.{last}"
        column = name.partition("->")[0]
        if "." not in column or name in ("not.and", "not.or"):
            path, last = "", name
        target = selection.find(path.split(".") if path else [])
        texts = as_list(value)
        if target is not selection and last == "order":
            target.order = texts[-1]
        elif target is not selection and last in ("limit", "offset"):
            if not texts[-1].isdigit() or len(texts[-1]) > 6:
                raise BadRequest(f"`{name}` must be a whole number.")
            setattr(target, last, int(texts[-1]))
        elif embed := target.find_embed(last):
            embed.has_any = _read_presence(name, texts)
        else:
            target.where.setdefault(last, []).extend(texts)


def _read_presence(name: str, texts: list[str]) -> bool:
    """Returns whether a filter of embedded rows asks for rows that have some, or none: `books=not.is.null`,
    `books=is.null`.
    """
    if texts not in (["is.null"], ["not.is.null"]):
        raise InvalidFilter(
            f"`{name}` names related rows, which are filtered by `is.null` and `not.is.null`.",
            remediation=f"Filter by their columns with `{name}.column=operator.value`.",
        )
    return texts == ["not.is.null"]


def read_order(selection: Selection) -> list[Order]:
    """Reads `created_at.desc,author(name).nullsfirst`. Nulls come last, or first if the order is descending."""
    orders: list[Order] = []
    parts = [part.strip() for part in split_outside(selection.order)]
    if len(parts) > _MOST_ORDERS:
        raise BadRequest(
            f"Rows are ordered by at most {_MOST_ORDERS} columns, and not by {len(parts)}.",
            remediation="Name the first few: rows that are equal in those are ordered by their keys.",
        )
    for part in parts:
        if distance_order := _read_distance(selection.table, part):
            orders.append(distance_order)
        elif related_match := _RELATED_ORDER.fullmatch(part):
            embed = _find_one(selection, related_match[1])
            order = _read_column_order(embed.selection.table, f"{related_match[2].strip()}{related_match[3]}")
            orders.append(replace(order, embed=embed))
        else:
            orders.append(_read_column_order(selection.table, part))
    return orders


def _find_one(selection: Selection, name: str) -> Embed:
    """Returns the related row that rows are ordered by. Raises InvalidFilter if there can be many, or if it is not
    selected.
    """
    for embed in selection.embeds:
        if name in (embed.name, embed.selection.table.name):
            if embed.many:
                raise InvalidFilter(
                    f"Rows are not ordered by `{name[:63]}`, of which each may have several.",
                    remediation=f"Order the related rows themselves with `{name[:63]}.order`, or declare a view.",
                )
            return embed
    raise InvalidFilter(
        f"Rows are ordered by a column of `{name[:63]}` only if `select` names it too.",
        remediation=f"Add `{name[:63]}()` to `select`.",
    )


def _read_column_order(table: TableInfo, text: str) -> Order:
    match = _ORDER.fullmatch(text)
    column = table.columns.get(match[1]) if match else None
    if match is None or column is None:
        raise InvalidFilter(
            f"`order={text[:60]}` is not a column of `{table.name}` with `.asc` or `.desc`.",
            remediation=f"Write `order={next(iter(table.columns))}.desc`, with one of details.columns.",
            details={"invalidFilters": [text[:100]], "columns": list(table.columns)},
        )
    tree: Expression = ["column", "", column.name]
    kind = column.type
    if match[2]:
        tree, kind = read_json_path(tree, column, match[2])
    if not kind.is_ordered:
        raise InvalidFilter(f"`{column.name}` is {kind}, which has no order.")
    words = match[3].split(".")
    descending = "desc" in words
    return Order(tree, kind, descending, "nullsfirst" in words or (descending and "nullslast" not in words))


def _read_distance(table: TableInfo, text: str) -> Order | None:
    """Reads the order by the distance to a vector: `embedding.cosine.{0.1,0.2,0.3}`."""
    match = _DISTANCE.fullmatch(text)
    column = table.columns.get(match[1]) if match else None
    if match is None or column is None:
        return None
    if column.type.name != "vector":
        raise InvalidFilter(f"`{column.name}` is {column.type}, and `{match[2]}` compares vectors.")
    vector = column.type.parse(f"[{match[3]}]", column.name)
    tree: Expression = ["distance", match[2], ["column", "", column.name], ["value", str(column.type), vector]]
    return Order(tree, ColumnType("double precision"), descending=False, nulls_first=False)


def _read_item(table: TableInfo, text: str) -> Item | None:
    match = _ITEM.fullmatch(text)
    column = table.columns.get(match[2]) if match else None
    if match is None or column is None:
        return None
    alias, _, path, cast = match.groups()
    tree: Expression = ["column", "", column.name]
    kind = column.type
    if path:
        tree, kind = read_json_path(tree, column, path)
        alias = alias or re.split(r"->>?", path)[-1]
    if cast is not None:
        if cast != "text":
            raise InvalidFilter(
                f"`{text[:60]}`: columns can be cast to text only.",
                remediation="Leave the cast out, or write `::text`.",
            )
        if not kind.is_text:
            tree, kind = ["cast", tree, "text"], TEXT
    return Item(alias or column.name, tree, kind)


def _read_embed(catalogue: Catalogue, table: TableInfo, text: str, depth: int) -> Embed:
    match = _EMBED.fullmatch(text)
    if match is None:
        raise InvalidFilter(
            f"`{text[:60]}` is not a related table with its columns: `author(id,name)`.",
            remediation="Write the name of the table and its columns in parentheses, without dots.",
        )
    if depth >= _DEEPEST:
        raise BadRequest(f"Related tables are embedded at most {_DEEPEST} deep.")
    spread_mark, alias, target, hints, inside = match.groups()
    words = hints.split("!")[1:]
    hint = next((word for word in words if word not in ("inner", "left")), None)
    relation = _find_relation(catalogue, table, target, hint)
    if relation is None:
        if hint is not None and _find_relation(catalogue, table, target, None) is not None:
            raise InvalidFilter(
                f"`{table.name}` and `{target[:63]}` are not related by `{hint[:63]}`.",
                remediation="Leave the hint out, or name the column that refers.",
            )
        remediation = "Declare the reference of a column with `references` in the schema."
        if table.view is not None or target in catalogue.views:
            remediation = (
                "A view is related by columns that it shows as they are: select what refers, or is referred to."
            )
        elif junction := _find_junction(catalogue, table, target):
            remediation = f"They are related by `{junction}`: write `{junction}({target}({inside[:100]}))`."
        raise InvalidFilter(f"`{table.name}` has no reference to or from `{target[:63]}`.", remediation=remediation)
    # Empty parentheses select nothing. A missing `select` selects everything.
    related_table = relation.related_table
    selection = (
        read_selection(catalogue, related_table, inside, depth + 1) if inside.strip() else Selection(related_table)
    )
    if spread_mark and (relation.many or selection.groups is not None):
        raise InvalidFilter(
            f"`{text[:60]}`: only the values of the one row that a row refers to are spread.",
            remediation="Leave the dots out: related rows and aggregates are embedded as a list.",
        )
    has_any = True if "inner" in words else None
    name = alias or target
    return Embed(name, relation.many, relation.ours, relation.theirs, has_any, selection, is_spread=bool(spread_mark))


class _Relation(NamedTuple):
    """hint: the referring column, with which a query chooses between several relations."""

    hint: str
    ours: str
    theirs: str
    related_table: TableInfo
    many: bool


def _find_relation(catalogue: Catalogue, table: TableInfo, target: str, hint: str | None) -> _Relation | None:
    """Returns how a table or view is related to one that a query names, also by the column that refers.

    Raises InvalidFilter if it is related in more than one way.
    """
    ways: list[_Relation] = []
    view = catalogue.views.get(target)
    for column in table.columns.values():
        to = column.references
        if to is None or hint not in (None, column.name, to.table, table.name_reference(column)):
            continue
        if to.table == table.name == target and hint is not None:
            # The name of the table means the rows that refer to this one. The row that this one refers to is embedded
            # by the column's name.
            continue
        if target in (to.table, column.name, table.name_reference(column)) or column.name == f"{target}_id":
            parent = catalogue.table(to.table)
            ways.append(_Relation(column.name, column.name, to.column, parent, many=False))
        elif view is not None:
            # A view that joins tables may have many rows with the same key.
            many, readable = len(view.query["tables"]) > 1, catalogue.find_readable(target)
            names = catalogue.find_columns(readable, to.table, to.column)
            ways += [_Relation(column.name, column.name, theirs, readable, many=many) for theirs in names]
    if target in catalogue.tables or view is not None:
        child = catalogue.find_readable(target)
        for column in child.columns.values():
            to = column.references
            if to is not None and hint in (None, column.name, child.name_reference(column)):
                names = catalogue.find_columns(table, to.table, to.column)
                many = not child.is_unique(column)
                ways += [_Relation(column.name, ours, column.name, child, many=many) for ours in names]
    if not ways and hint is None:
        ways = _find_by_constraint(catalogue, table, target)
    if len(ways) > 1:
        # If a table refers to itself, the column alone means the row that it refers to.
        itself = table.name == target
        spellings = [way.hint if itself and way.ours == way.hint else f"{target}!{way.hint}" for way in ways]
        choices = ", ".join(f"`{each}(...)`" for each in dict.fromkeys(spellings))
        raise InvalidFilter(
            f"`{table.name}` and `{target}` are related in several ways: write one of {choices}.",
            remediation="The column after `!` is the one that refers.",
        )
    return ways[0] if ways else None


def _find_by_constraint(catalogue: Catalogue, table: TableInfo, constraint: str) -> list[_Relation]:
    """Returns the rows that refer to those of a table by the foreign key of this name."""
    return [
        _Relation(column.name, ours, column.name, child, many=not child.is_unique(column))
        for child in catalogue.tables.values()
        for column in child.columns.values()
        if column.references is not None and child.name_reference(column) == constraint
        for ours in catalogue.find_columns(table, column.references.table, column.references.column)
    ]


def _find_junction(catalogue: Catalogue, table: TableInfo, target: str) -> str | None:
    """Returns the table that refers to both tables, and so makes their relation many-to-many."""
    for junction in catalogue.tables.values():
        referred_tables = [each.references.table for each in junction.columns.values() if each.references is not None]
        if table.name in referred_tables and target in referred_tables:
            return junction.name
    return None
