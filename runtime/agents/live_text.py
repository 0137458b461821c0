"""The text of a model's answer while it arrives, for those who follow the run. It is not kept.

Readers in the process that executes the run get it from memory. Those in other processes ask for it with a notice;
then the executing process writes the text so far to a row, a few times a second, until nobody has asked for a while.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.run_watcher import RunWatcher
from baobab.runtime.agents.tables import live_texts
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.storage.sql.statements import Statements
from baobab.tools.core.services import Services

MAX_CHARACTERS = 2**20
"""The most characters of an answer that can be followed; the rest comes with the answer itself."""
_TOPIC = "run_followed"
_TEXTS = "texts"
_ASKED_SECONDS = 30.0
"""How often a reader in another process asks again. After each request the text is written for twice as long."""
_FEW = 256
"""With this many runs that are followed in other processes, those without a follower are removed."""
_WRITE_SECONDS = 0.25
_LEFT_SECONDS = 10.0
"""How long readers can still get the text after the answer has ended."""
_WRITE = (
    "INSERT INTO agent_live_texts (app_id, run_id, node_id, step, attempt, is_output, has_ended, length, text)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (app_id, run_id) DO UPDATE SET node_id = excluded.node_id,"
    " step = excluded.step, attempt = excluded.attempt, is_output = excluded.is_output,"
    " has_ended = excluded.has_ended, length = excluded.length, text = excluded.text"
)

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class LiveText:
    """The answer of one step of a run, as far as it has arrived.

    is_output: whether the answer is a part of the run's output, which users and visitors get. attempt: counts how often
    the answer has begun; the text of earlier attempts is void. length: in characters.
    """

    node_id: str
    step: int
    is_output: bool
    attempt: int = 0
    length: int = 0
    has_ended: bool = False
    _pieces: list[str] = field(default_factory=list)

    def restart(self) -> None:
        """Discards the text, because the answer begins anew."""
        self.attempt += 1
        self.length = 0
        self._pieces.clear()

    def append(self, piece: str) -> None:
        """Adds a piece, as far as there is room. NUL is replaced, because not every database can store it."""
        piece = piece[: MAX_CHARACTERS - self.length].replace("\0", "\ufffd")
        self.length += len(piece)
        self._pieces.append(piece)

    def read(self, start: int = 0) -> str:
        """Returns the text from the character `start` on."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0][start:]


class LiveTexts:
    """The live texts that this process knows: those of the runs that it executes, and those that its readers follow."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._watcher = services.of(RunWatcher)
        self._texts: dict[str, LiveText] = {}
        self._wanted_until: dict[str, float] = {}
        """The time until which readers in other processes follow a run, by run id."""
        self._most_wanted = _FEW
        self._followed_runs: dict[str, tuple[Database, float]] = {}
        """The runs of other processes that are followed here, with the time of the last request for their text."""
        self._loading: asyncio.Task[None] | None = None
        services.notices.subscribe(_TOPIC, self._note_wanted)
        services.notices.on_announcement(_TEXTS, self._load_soon)

    def find(self, run_id: str) -> LiveText | None:
        return self._texts.get(run_id)

    @contextlib.asynccontextmanager
    async def open_text(
        self, run: Any, text: LiveText, database: Database
    ) -> AsyncIterator[Callable[[str | None], None]]:
        """Yields a function that takes the pieces of an answer for the run's readers, and None when the answer begins
        anew. run: its row.
        """
        run_id = run.id
        self._texts[run_id] = text
        sharing: asyncio.Task[None] | None = None

        def take_piece(piece: str | None) -> None:
            nonlocal sharing
            if piece is None:
                text.restart()
                return
            text.append(piece)
            self._watcher.notify_of_text(run_id)
            if sharing is None and self._wanted_until.get(run_id, 0.0) > asyncio.get_running_loop().time():
                sharing = asyncio.create_task(self._share(run, text, database), name="live text")

        try:
            yield take_piece
        finally:
            text.has_ended = True
            asyncio.get_running_loop().call_later(_LEFT_SECONDS, self._forget, run_id, text)
            if sharing is not None:
                # The whole of it is there for other processes before they are told that the step has ended. Whatever
                # becomes of that, the run goes on.
                await asyncio.wait((sharing,))

    async def follow(self, run_id: str, database: Database) -> None:
        """Asks the process that executes a run for its texts, unless this is that process or it was asked a moment
        ago.
        """
        now = asyncio.get_running_loop().time()
        asked_at = self._followed_runs[run_id][1] if run_id in self._followed_runs else -_ASKED_SECONDS
        if self._watcher.is_executing(run_id) or asked_at + _ASKED_SECONDS > now:
            return
        self._followed_runs[run_id] = database, now
        async with self._services.database.writing_unit(lock=None) as unit:
            await self._services.notices.publish(unit, _TOPIC, run_id)

    async def load(self, run_id: str, database: Database) -> LiveText | None:
        """Returns the text as it is now, even if another process writes it."""
        if run_id in self._followed_runs and not self._watcher.is_executing(run_id):
            await self._load_texts(database, [run_id])
        return self.find(run_id)

    def _note_wanted(self, run_id: str) -> None:
        now = asyncio.get_running_loop().time()
        self._wanted_until[run_id] = now + 2 * _ASKED_SECONDS
        if len(self._wanted_until) > self._most_wanted:
            self._wanted_until = {other: until for other, until in self._wanted_until.items() if until > now}
            self._most_wanted = max(_FEW, 2 * len(self._wanted_until))

    async def _share(self, run: Any, text: LiveText, database: Database) -> None:
        """Writes the text for other processes until it has ended."""
        shared_state: tuple[int, int, bool] | None = None
        while True:
            state = (text.attempt, text.length, text.has_ended)
            if state != shared_state:
                with contextlib.suppress(DatabaseUnavailable):
                    await database.transact(_writing(run, text), durable=False, announce=[_TEXTS])
                shared_state = state
            if state[-1]:
                return
            await asyncio.sleep(_WRITE_SECONDS)

    def _load_soon(self) -> None:
        now = asyncio.get_running_loop().time()
        for run_id in [run_id for run_id, (_, at) in self._followed_runs.items() if at + 2 * _ASKED_SECONDS < now]:
            del self._followed_runs[run_id]
            self._texts.pop(run_id, None)
        if self._followed_runs and (self._loading is None or self._loading.done()):
            self._loading = asyncio.create_task(self._load_followed(), name="live texts")

    async def _load_followed(self) -> None:
        by_database: dict[Database, list[str]] = {}
        for run_id, (database, _) in self._followed_runs.items():
            by_database.setdefault(database, []).append(run_id)
        for database, run_ids in by_database.items():
            for start in range(0, len(run_ids), 500):
                try:
                    await self._load_texts(database, run_ids[start : start + 500])
                except DatabaseUnavailable as exc:
                    _log.warning("live texts: the database does not answer (%s)", exc)

    async def _load_texts(self, database: Database, run_ids: list[str]) -> None:
        states = select(*[column for column in live_texts.c if column.name != "text"])
        async with database.reading() as connection:
            rows = (await connection.execute(states.where(live_texts.c.run_id.in_(run_ids)))).all()
            for row in rows:
                known_text = self._texts.get(row.run_id)
                if self._watcher.is_executing(row.run_id):
                    continue
                is_same = known_text is not None and (known_text.step, known_text.attempt) == (row.step, row.attempt)
                if known_text is None or not is_same or known_text.length > row.length:
                    known_text = self._texts[row.run_id] = LiveText(row.node_id, row.step, row.is_output, row.attempt)
                if known_text.length < row.length:
                    # The text may be longer than its row was a moment ago.
                    whole = select(live_texts.c.text).where(
                        live_texts.c.app_id == row.app_id,
                        live_texts.c.run_id == row.run_id,
                        live_texts.c.step == row.step,
                        live_texts.c.attempt == row.attempt,
                    )
                    text: str = (await connection.execute(whole)).scalar() or ""
                    known_text.append(text[known_text.length :])
                known_text.has_ended = row.has_ended
                self._watcher.notify_of_text(row.run_id)

    def _forget(self, run_id: str, text: LiveText) -> None:
        if self._texts.get(run_id) is text:
            del self._texts[run_id]


def _writing(run: Any, text: LiveText) -> Callable[[Statements], None]:
    state = (text.node_id, text.step, text.attempt, text.is_output, text.has_ended, text.length, text.read())
    row = (run.app_id, run.id, *state)

    def write(statements: Statements) -> None:
        statements.rows(_WRITE, *row)

    return write
