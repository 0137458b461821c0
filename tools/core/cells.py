"""Cells: where a new app goes, and which cells take none because an operator drains them.

A cell is a region of the settings. Those of one geography are alike to callers: who names the geography gets an app in
the cell that has the least of them.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from sqlalchemy import Column, String, Table, Text, func, select

from baobab.storage.sql.database import Execute
from baobab.storage.sql.tables import Instant, metadata
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.errors import Unavailable
from baobab.tools.core.services import Services
from baobab.tools.core.stores import Cell

_COUNTED_FOR_SECONDS = 10.0
_COUNTED_FOR_TIMES = 500
"""How many times as long as a count takes it is good for: a million apps take a tenth of a second."""
_RETRY_SECONDS = 60.0

draining_cells = Table(
    "draining_cells",
    metadata,
    Column("name", String(40), primary_key=True),
    # A new one each time, so that a job of an earlier drain does not take this one for its own.
    Column("drain_id", String(36), nullable=False),
    Column("since", Instant, nullable=False),
    Column("started_by", String(200), nullable=False),
    # Since when nothing has been left in it.
    Column("emptied_at", Instant),
    Column("last_error", Text),
)
"""The cells that take no new apps. The row goes when the operator admits apps again."""

_DRAINING = select(draining_cells.c.name)


class RegionFull(Unavailable):
    code = "region_full"
    summary = "The region takes no new apps now."
    remediation = "Use another of the regions that op:system_regions lists, or try again later."

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after=_RETRY_SECONDS)


class Cells:
    """Chooses the cell of an app by how many apps each has already.

    The counts are some seconds old, and know of this process's own choices since. So cells are filled evenly on the
    whole, not exactly; nobody waits for anybody to be counted.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._cells = services.options.cells
        self._apps: Counter[str] = Counter()
        self._counted_until: float | None = None

    def list_region_names(self) -> list[str]:
        """Lists the names that callers may give as a region: those of every cell and every geography."""
        return list(dict.fromkeys([*self._cells, *(cell.geography for cell in self._cells.values())]))

    def find(self, region: str | None) -> list[Cell]:
        """Returns the cells that a name stands for: those of the geography, else the one cell. None of them if there is
        no such region. Without a name, those of the installation's own geography.
        """
        name = region or self._cells[self._services.options.default_region].geography
        of_geography = [cell for cell in self._cells.values() if cell.geography == name]
        return of_geography or [cell for cell in self._cells.values() if cell.name == name]

    async def choose(self, execute: Execute, cells: Sequence[Cell]) -> str:
        """Returns the name of the least loaded of some cells that takes new apps. Raises RegionFull if none does.

        execute: a statement in the home database.
        """
        if len(self._cells) > 1:
            draining = await load_draining(execute)
            cells = [cell for cell in cells if cell.name not in draining] or _refuse(cells, "being drained")
        if len(cells) > 1 or cells[0].max_apps is not None:
            await self._count(execute)
            cells = [cell for cell in cells if self._has_room(cell)] or _refuse(cells, "full")
            # One that does not answer takes apps only if there is no other.
            cells = [cell for cell in cells if cell.name not in self._services.silent_regions] or cells
        by_share = all(cell.max_apps is not None for cell in cells)
        emptiest_cell = min(cells, key=lambda cell: self._apps[cell.name] / ((cell.max_apps or 1) if by_share else 1))
        self._apps[emptiest_cell.name] += 1
        return emptiest_cell.name

    def _has_room(self, cell: Cell) -> bool:
        return cell.max_apps is None or self._apps[cell.name] < cell.max_apps

    async def _count(self, execute: Execute) -> None:
        began_at = self._services.clock.monotonic()
        if self._counted_until is None or began_at >= self._counted_until:
            self._apps = await count_apps(execute, self._cells)
            now = self._services.clock.monotonic()
            self._counted_until = now + max(_COUNTED_FOR_SECONDS, _COUNTED_FOR_TIMES * (now - began_at))


async def load_draining(execute: Execute) -> set[str]:
    """Returns the names of the cells that take no new apps."""
    return set((await execute(_DRAINING)).scalars())


async def count_apps(execute: Execute, cells: Collection[str]) -> Counter[str]:
    """Counts the apps of some cells, along an index."""
    count_query = (
        select(apps.c.region, func.count().label("number")).where(apps.c.region.in_(cells)).group_by(apps.c.region)
    )
    return Counter({row.region: row.number for row in await execute(count_query)})


def _refuse(cells: Sequence[Cell], reason: str) -> list[Cell]:
    names = ", ".join(f"`{cell.name}`" for cell in cells)
    raise RegionFull(f"{names}: {reason}, so no app is taken." if len(cells) == 1 else f"All of {names} are {reason}.")
