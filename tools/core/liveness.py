"""Whether this installation acts: a copy of one that lives sends nothing and starts nothing."""

import asyncio
from datetime import datetime
from pathlib import Path

from baobab.storage.clock import Clock
from baobab.storage.copies import CopyMark, find_place, load_mark, read_mark, remove_mark, write_mark
from baobab.storage.sql.database import INSTALLATION, Database
from baobab.storage.sql.notices import Notices
from baobab.tools.core.errors import Conflict

_TOPIC = "liveness"
_LIVE = "live"


class InstallationIsCopy(Conflict):
    code = "INSTALLATION_IS_COPY"
    summary = (
        "This installation is a copy of another one, so it sends nothing, calls no other service and starts no agent."
    )
    remediation = (
        "Call the installation that lives. Only if this is the one that shall live, its operator stops the other one "
        "and starts this one with `baobab serve --live`, or uses op:system_go_live."
    )

    def __init__(self, mark: CopyMark | None = None) -> None:
        details = {} if mark is None else {"since": mark.since.isoformat(), "why": mark.how}
        super().__init__(details=details)


class Liveness:
    """Knows whether the installation is a copy. Processes learn from each other when that changes."""

    def __init__(self) -> None:
        self.mark: CopyMark | None = None
        """Set while the installation is a copy."""
        self._lives = asyncio.Event()
        self._lives.set()

    async def load(self, database: Database, data: Path, notices: Notices, clock: Clock) -> None:
        """Reads the mark, or finds out that this is a copy, and follows what other processes say from then on."""
        self._follow(await load_mark(database, data, clock.now()))
        notices.subscribe(_TOPIC, self._read_notice)

    async def look_again(self, database: Database) -> None:
        """Reads the mark again: a notice that came while this process started was not heard."""
        self._follow(await read_mark(database))

    @property
    def is_copy(self) -> bool:
        return self.mark is not None

    def require_live(self) -> None:
        """Raises InstallationIsCopy in a copy."""
        if self.mark is not None:
            raise InstallationIsCopy(self.mark)

    async def wait_until_live(self) -> None:
        await self._lives.wait()

    async def begin_to_live(self, database: Database, notices: Notices) -> None:
        """Makes this copy the installation that lives."""
        place = await find_place(database)
        async with database.writing_unit(lock=INSTALLATION) as unit:
            await remove_mark(unit.execute, place)
            await notices.publish(unit, _TOPIC, _LIVE)

    async def become_copy(self, database: Database, notices: Notices, mark: CopyMark) -> None:
        """Makes this installation a copy."""
        async with database.writing_unit(lock=INSTALLATION) as unit:
            await write_mark(unit.execute, mark)
            await notices.publish(unit, _TOPIC, f"{mark.since.isoformat()} {mark.how}"[:200])

    def _read_notice(self, subject: str) -> None:
        since, _, how = subject.partition(" ")
        self._follow(None if subject == _LIVE else CopyMark(datetime.fromisoformat(since), how))

    def _follow(self, mark: CopyMark | None) -> None:
        self.mark = mark
        if mark is None:
            self._lives.set()
        else:
            self._lives.clear()
