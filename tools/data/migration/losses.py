"""What a schema would lose that its author may not mean to lose: left-out tables, changed types, and renames that look
like new columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from baobab.tools.data.errors import DestructiveChange
from baobab.tools.data.schema.catalogue import Catalogue
from baobab.tools.data.schema.document import Wanted


class Loss(Protocol):
    """A step of a migration that loses data, and what the document must contain to allow it."""

    @property
    def description(self) -> str: ...

    @property
    def authorise(self) -> str: ...


def build_refusal(current: Catalogue, target: Wanted, losses: Sequence[Loss]) -> DestructiveChange:
    """Builds the error for a schema that would lose data. Its remedy begins with what the author most likely meant, and
    harms nobody who obeys it literally.
    """
    left_out = sorted(current.tables.keys() - target.tables.keys() - target.dropped_tables)
    changed_types = [
        loss.description for loss in losses if loss.description.removeprefix("drop the table ") not in left_out
    ]
    harms, remedies = [], []
    if left_out:
        names, is_one = _join(left_out), len(left_out) == 1
        harms.append(f"leaves out {names}, which would be dropped with {'its' if is_one else 'their'} rows")
        remedies.append(
            f"You left out {names}: send {'it' if is_one else 'them'} too, as op:schema_get answers the whole schema, "
            "or send only what changes with `mode: merge`."
        )
        new_names = sorted(target.tables.keys() - current.tables.keys())
        if is_one and len(new_names) == 1:
            remedies.append(
                f"If `{new_names[0]}` is `{left_out[0]}` under a new name, add "
                f'"_renameTables": {{"{left_out[0]}": "{new_names[0]}"}}, which keeps its rows.'
            )
        remedies.append("To drop a table on purpose, name it in `_drop`.")
    if changed_types:
        harms.append(f"would {_join(changed_types, '')}, which the values may not fit")
        remedies.append(
            "To change a type, add a column of the new type under another name, copy the values, and keep the older "
            "column until you have compared them."
        )
    return DestructiveChange(
        f"The schema {', and '.join(harms)}. Nothing was changed.",
        remediation=" ".join(remedies),
        details={"changes": [{"change": loss.description, "authorise": loss.authorise} for loss in losses]},
    )


def suggest_renames(current: Catalogue, result: Catalogue, document: Mapping[str, Any]) -> list[str]:
    """Returns warnings about new columns that may be older ones under a new name.

    document: as it was sent. current: the catalogue before it, and result: the one after it.
    """
    return [
        f"`{table}.{new}` is a new column, and `{old}`, which the schema leaves out, stays with its values. If you "
        f'meant to rename `{old}` to `{new}`, drop `{new}` while it is empty ("_dropColumns": ["{new}"]) and then send '
        f'"_renameColumns": {{"{old}": "{new}"}} for the table.'
        for table, old, new in _find_pairs(current, result, document)
    ]


def _find_pairs(current: Catalogue, result: Catalogue, document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, part in document.get("tables", {}).items():
        today, table, named_columns = current.tables.get(name), result.tables.get(name), part.get("columns")
        if today is None or table is None or not named_columns or part.get("_renameColumns"):
            continue
        left_out = [
            each for each in today.columns.values() if each.name not in named_columns and each.name in table.columns
        ]
        new = [each for each in table.columns.values() if each.name not in today.columns]
        # A document that names hardly any present column does not leave the others out by mistake.
        if len(left_out) == len(new) == 1 < len(today.columns) and left_out[0].type == new[0].type:
            yield name, left_out[0].name, new[0].name


def _join(names: Sequence[str], mark: str = "`") -> str:
    quoted_names = [f"{mark}{name}{mark}" for name in names]
    return " and ".join(filter(None, (", ".join(quoted_names[:-1]), quoted_names[-1])))
