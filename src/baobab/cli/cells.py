"""`baobab cells`: shows cells, and drains them."""

from pathlib import Path

import click

from baobab.cli.installation import data_option, print_lines
from baobab.cli.parameters import Word


@click.group()
def cells() -> None:
    """Show cells, and drain them.

    A cell is a region: see docs/scaling.md. These commands work on the data folder itself. You can use them while the
    server runs; changes take effect at once.
    """


@cells.command("list")
@data_option
def cells_list(data: Path | None) -> None:
    """List the cells: geography, apps, and how far a drain is."""
    from baobab.cli.work.cells import show_cells

    print_lines(data, show_cells)


@cells.command("drain")
@click.argument("name", type=Word())
@data_option
def cells_drain(name: str, data: Path | None) -> None:
    """Empty the cell NAME: it takes no new apps, and its apps move to other cells of its geography.

    The servers and workers move the apps in the background; `baobab cells list` shows how many are left. While an app
    moves, writes of its data answer 503 with Retry-After for some seconds. The copies that moves leave behind stay
    in the cell. The cell takes apps again after `baobab cells admit`.
    """
    from baobab.cli.work.cells import drain_cell

    print_lines(data, lambda services: drain_cell(services, name))


@cells.command("admit")
@click.argument("name", type=Word())
@data_option
def cells_admit(name: str, data: Path | None) -> None:
    """Stop draining the cell NAME: it takes new apps again.

    Moves that are under way are completed. Apps that have moved stay where they are.
    """
    from baobab.cli.work.cells import admit_to_cell

    print_lines(data, lambda services: admit_to_cell(services, name))
