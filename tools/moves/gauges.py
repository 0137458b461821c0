"""The gauges of moves, for the metrics."""

from baobab.tools.core import Services
from baobab.tools.core.cells import count_apps
from baobab.tools.core.gauges import Reading
from baobab.tools.moves.toolset import moves


@moves.gauge("baobab_cell_apps", labels=("cell",))
async def read_cells(services: Services) -> Reading:
    """Apps in each cell."""
    cells = services.options.cells
    async with services.database.reading() as connection:
        numbers = await count_apps(connection.execute, cells)
    return {(cell,): float(numbers[cell]) for cell in cells}
