"""The barrier between the rows that policies hide and everything that a caller asks for.

A filter that is evaluated on a hidden row tells of it by the time that it takes, or by an error. Databases evaluate the
conditions of a statement in any order, so a condition stands behind the policy explicitly. Comparisons of columns with
values tell nothing and stay outside, so that indexes serve them (docs/decisions/0035-barrier.md).
"""

from collections.abc import Collection, Iterable

from baobab.tools.data.expressions.expressions import FALSE, TRUE, both
from baobab.tools.data.expressions.trees import is_leakproof
from baobab.tools.data.schema.catalogue import Expression, TableInfo


def part_conditions(
    conditions: Iterable[Expression], computed: Collection[str] = ()
) -> tuple[list[Expression], list[Expression]]:
    """Splits conditions, all of which must hold, into those that tell nothing and the others."""
    leakproof: list[Expression] = []
    others: list[Expression] = []
    for condition in conditions:
        for part in condition[1:] if condition[0] == "and" else [condition]:
            (leakproof if is_leakproof(part, computed) else others).append(part)
    return leakproof, others


def place_behind(table: TableInfo, policy: Expression, conditions: Iterable[Expression]) -> Expression:
    """Joins a policy of a table with conditions, of which those that could tell of a row are evaluated only on rows
    that the policy opens.
    """
    if policy in (TRUE, FALSE):
        return both(*conditions, policy)
    leakproof, others = part_conditions(conditions)
    if not others:
        return both(*leakproof, policy)
    return both(*leakproof, policy, ["behind", table.name, policy, both(*others)])
