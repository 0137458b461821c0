"""Tables of columns side by side: each figure, and its ratio to the same figure of the first column."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_NAME, _COLUMN = 24, 36


class Cell(NamedTuple):
    """The figures of one column for one kind of work."""

    rate: float
    """Calls a second."""
    cpu: float
    """Microseconds of CPU that a call cost the processes of ours, all workers together."""
    stores: float
    """The same of the database servers."""


def best_cell(cells: Sequence[Cell]) -> Cell:
    """Of several rounds: the machine's other work only ever slows a round down, so each figure's best is nearest."""
    return Cell(max(c.rate for c in cells), min(c.cpu for c in cells), min(c.stores for c in cells))


def render_table(title: str, columns: Sequence[str], rows: Mapping[str, Mapping[str, Cell]]) -> Iterator[str]:
    """rows: of each kind of work the cell of each column."""
    yield f"{title:{_NAME}}" + "".join(f"{column:>{_COLUMN}}" for column in columns)
    yield " " * _NAME + f"{'calls/s':>{_COLUMN - 22}}{'us':>12}{'stores us':>10}" * len(columns)
    for name, cells in rows.items():
        first = cells[columns[0]]
        yield f"{name:{_NAME}}" + "".join(_format_cell(cells[column], first) for column in columns)


def _format_cell(cell: Cell, first: Cell) -> str:
    rate = f"{cell.rate:.0f} {f'x{cell.rate / first.rate:.2f}':>6}"
    cpu = f"{cell.cpu:.0f} {f'x{cell.cpu / first.cpu:.1f}':>5}"
    return f"{rate:>{_COLUMN - 22}}{cpu:>12}{cell.stores:>10.0f}"
