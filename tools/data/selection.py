"""Reads which columns and related rows a query wants: `id,name:title,data->>size,author(id,name),comments(text)`."""

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from baobab.tools.core.errors import BadRequest
from baobab.tools.data.aggregates import find_groups, read_aggregate
from baobab.tools.data.catalogue import Catalogue, Expression, TableInfo
from baobab.tools.data.column_types import ColumnType
from baobab.tools.data.errors import InvalidFilter
from baobab.tools.data.filters import TEXT, Where, as_list, read_json_path, split_outside
from baobab.tools.data.selection_items import Item

_ITEM = re.compile(r"(?:([^:(),\"!]+?):(?!:))?\"?([a-z_][a-z0-9_]*)\"?((?:->>?[^-:]+)*)(?:::([a-z0-9 ]+))?", re.DOTALL)
_EMBED = re.compile(r"(\.\.\.)?(?:([^:(),\"!]+?):)?([a-z_][a-z0-9_]*)((?:![a-z_][a-z0-9_]*)*)\((.*)\)", re.DOTALL)
_ORDER = re.compile(r"\"?([a-z_][a-z0-9_]*)\"?((?:->>?[^-.]+)*)((?:\.(?:asc|desc|nullsfirst|nullslast))*)")
_RELATED_ORDER = re.compile(r"([^:()\",]+)\(([^()]*)\)((?:\.(?:asc|desc|nullsfirst|nullslast))*)", re.DOTALL)
_DISTANCE = re.compile(r"([a-z_][a-z0-9_]*)\.(cosine|l2|inner)\.\{([^{}]*)\}")
_MOST_COLUMNS = 200
_MOST_EMBEDS = 20
"""Related tables of one query, those in related ones counted: each is a statement of its own."""
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

    many: whether a list of them, which refer to the row by `theirs`, or the one that the row refers to by `ours`.
    has_any: whether only rows that have some are asked for, or only those that have none; None for all rows.
    is_spread: whether the row has the values of the one as its own: `...author(name)`. What selects nothing, `books()`,
    is there for filters and orders only.
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

    @property
    def names(self) -> list[str]:
        """The names of what each row has."""
        return [item.name for item in self.items] + [name for embed in self.embeds for name in embed.names]

    def find_embed(self, name: str) -> Embed | None:
        """The embedded rows that a filter of this name is about; None for a filter of a column."""
        if name in self.table.columns:
            return None
        return next((embed for embed in self.embeds if embed.name == name), None)

    def count_embeds(self) -> int:
        return sum(1 + embed.selection.count_embeds() for embed in self.embeds)

    def find(self, path: list[str]) -> "Selection":
        """The selection of an embedded table by its name, or names; InvalidFilter if the query embeds none."""
        if not path:
            return self
        for embed in self.embeds:
            if path[0] in (embed.name, embed.selection.table.name):
                return embed.selection.find(path[1:])
        raise InvalidFilter(f"`{path[0][:63]}` is not a column, and the query embeds no table of this name.")


def read_selection(catalogue: Catalogue, table: TableInfo, text: str | None, depth: int = 0) -> Selection:
    """Names that there are not are left out; where no name is left, all columns are meant."""
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
    """Raises InvalidFilter if a value of a related row would take the place of another."""
    for embed in selection.embeds:
        if embed.is_spread:
            others = [name for name in selection.names if name in embed.names]
            if len(others) > len(embed.names):
                twice = next(name for name in others if others.count(name) > 1)
                raise InvalidFilter(
                    f"`{twice[:63]}` is selected twice, once by `...{embed.name}`.",
                    remediation=f"Give one of them another name: `...{embed.name}(other_name:{twice[:63]})`.",
                )


def place_filters(selection: Selection, where: Where) -> None:
    """Gives each filter, order and limit to the table that it is about: `comments.text=eq.x`, `comments.order=id`."""
    for name, given in where.items():
        path, _, last = name.rpartition(".")
        if name in ("not.and", "not.or") or not path:
            path, last = "", name
        elif path.endswith(".not") or path == "not":
            path, last = path[:-4], f"not.{last}"
        column = name.partition("->")[0]
        if "." not in column or name in ("not.and", "not.or"):
            path, last = "", name
        target = selection.find(path.split(".") if path else [])
        texts = as_list(given)
        if target is not selection and last == "order":
            target.order = texts[-1]
        elif target is not selection and last in ("limit", "offset"):
            if not texts[-1].isdigit() or len(texts[-1]) > 6:
                raise BadRequest(f"`{name}` is a whole number.")
            setattr(target, last, int(texts[-1]))
        elif embed := target.find_embed(last):
            embed.has_any = _read_presence(name, texts)
        else:
            target.where.setdefault(last, []).extend(texts)


def _read_presence(name: str, texts: list[str]) -> bool:
    """Whether a filter of embedded rows asks for rows that have some: `books=not.is.null`, `books=is.null`."""
    if texts not in (["is.null"], ["not.is.null"]):
        raise InvalidFilter(
            f"`{name}` names related rows, which are filtered by `is.null` and `not.is.null`.",
            remediation=f"Filter by their columns with `{name}.column=operator.value`.",
        )
    return texts == ["not.is.null"]


def read_order(selection: Selection) -> list[Order]:
    """Reads `created_at.desc,author(name).nullsfirst`. Nulls come last, or first where the order is descending."""
    orders: list[Order] = []
    for part in map(str.strip, split_outside(selection.order)):
        if near := _read_distance(selection.table, part):
            orders.append(near)
        elif related := _RELATED_ORDER.fullmatch(part):
            embed = _find_one(selection, related[1])
            order = _read_column_order(embed.selection.table, f"{related[2].strip()}{related[3]}")
            orders.append(replace(order, embed=embed))
        else:
            orders.append(_read_column_order(selection.table, part))
    return orders


def _find_one(selection: Selection, name: str) -> Embed:
    """The related row that rows are ordered by. InvalidFilter for what is not one, or is not selected."""
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
    found = _ORDER.fullmatch(text)
    column = table.columns.get(found[1]) if found else None
    if found is None or column is None:
        raise InvalidFilter(
            f"`order={text[:60]}` is not a column of `{table.name}` with `.asc` or `.desc`.",
            details={"invalidFilters": [text[:100]], "columns": list(table.columns)},
        )
    tree: Expression = ["column", "", column.name]
    kind = column.type
    if found[2]:
        tree, kind = read_json_path(tree, column, found[2])
    if not kind.is_ordered:
        raise InvalidFilter(f"`{column.name}` is {kind}, which has no order.")
    words = found[3].split(".")
    descending = "desc" in words
    return Order(tree, kind, descending, "nullsfirst" in words or (descending and "nullslast" not in words))


def _read_distance(table: TableInfo, text: str) -> Order | None:
    """The order by how near vectors are to one: `embedding.cosine.{0.1,0.2,0.3}`."""
    found = _DISTANCE.fullmatch(text)
    column = table.columns.get(found[1]) if found else None
    if found is None or column is None:
        return None
    if column.type.name != "vector":
        raise InvalidFilter(f"`{column.name}` is {column.type}, and `{found[2]}` compares vectors.")
    wanted = column.type.parse(f"[{found[3]}]", column.name)
    tree: Expression = ["distance", found[2], ["column", "", column.name], ["value", str(column.type), wanted]]
    return Order(tree, ColumnType("double precision"), descending=False, nulls_first=False)


def _read_item(table: TableInfo, text: str) -> Item | None:
    found = _ITEM.fullmatch(text)
    column = table.columns.get(found[2]) if found else None
    if found is None or column is None:
        return None
    alias, _, path, cast = found.groups()
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
    found = _EMBED.fullmatch(text)
    if found is None:
        raise InvalidFilter(
            f"`{text[:60]}` is not a related table with its columns: `author(id,name)`.",
            remediation="Write the name of the table and its columns in parentheses, without dots.",
        )
    if depth >= _DEEPEST:
        raise BadRequest(f"Related tables are embedded at most {_DEEPEST} deep.")
    spread, alias, target, hints, inside = found.groups()
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
    # Nothing in the parentheses is nothing, unlike no `select`.
    related = relation.related
    selection = read_selection(catalogue, related, inside, depth + 1) if inside.strip() else Selection(related)
    if spread and (relation.many or selection.groups is not None):
        raise InvalidFilter(
            f"`{text[:60]}`: only the values of the one row that a row refers to are spread.",
            remediation="Leave the dots out: related rows and aggregates are embedded as a list.",
        )
    has_any = True if "inner" in words else None
    name = alias or target
    return Embed(name, relation.many, relation.ours, relation.theirs, has_any, selection, is_spread=bool(spread))


class _Relation(NamedTuple):
    """hint: the column that refers, which a query names to choose between several relations."""

    hint: str
    ours: str
    theirs: str
    related: TableInfo
    many: bool


def _find_relation(catalogue: Catalogue, table: TableInfo, target: str, hint: str | None) -> _Relation | None:
    """How a table or view is related to one that a query names, or by the column that it names. InvalidFilter if in
    more than one way.
    """
    ways: list[_Relation] = []
    view = catalogue.views.get(target)
    for column in table.columns.values():
        to = column.references
        if to is None or hint not in (None, column.name, to.table, table.name_reference(column)):
            continue
        if to.table == table.name == target and hint is not None:
            # Those that refer are meant; the one that is referred to is embedded by the name of the column.
            continue
        if target in (to.table, column.name) or column.name == f"{target}_id":
            one = catalogue.table(to.table)
            ways.append(_Relation(column.name, column.name, to.column, one, many=False))
        elif view is not None:
            # A view that joins tables may show the same key in many rows.
            many, shown = len(view.query["tables"]) > 1, catalogue.find_readable(target)
            names = catalogue.find_columns(shown, to.table, to.column)
            ways += [_Relation(column.name, column.name, theirs, shown, many=many) for theirs in names]
    if target in catalogue.tables or view is not None:
        other = catalogue.find_readable(target)
        for column in other.columns.values():
            to = column.references
            if to is not None and hint in (None, column.name, other.name_reference(column)):
                names = catalogue.find_columns(table, to.table, to.column)
                ways += [_Relation(column.name, ours, column.name, other, many=True) for ours in names]
    if len(ways) > 1:
        # Of a table that refers to itself, a column is named alone for the row that it refers to.
        itself = table.name == target
        named = [way.hint if itself and not way.many else f"{target}!{way.hint}" for way in ways]
        written = ", ".join(f"`{each}(...)`" for each in dict.fromkeys(named))
        raise InvalidFilter(
            f"`{table.name}` and `{target}` are related in several ways: write one of {written}.",
            remediation="The column behind `!` is the one that refers.",
        )
    return ways[0] if ways else None


def _find_junction(catalogue: Catalogue, table: TableInfo, target: str) -> str | None:
    """The table that refers to both, by which rows of one have many of the other."""
    for other in catalogue.tables.values():
        referred = [each.references.table for each in other.columns.values() if each.references is not None]
        if table.name in referred and target in referred:
            return other.name
    return None
