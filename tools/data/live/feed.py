"""Feeds send the changes of an app's tables to the listeners of this process, whichever process made them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from baobab.storage.data.store import DataStore
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.statements import Statements
from baobab.tools.core import AppNotFound, BaobabError, Services
from baobab.tools.data.actor import Actor
from baobab.tools.data.history.change_log import Change, LogReader, Operation
from baobab.tools.data.live.listener import Filter, Frame, Listener, build_message, fits_filter
from baobab.tools.data.live.presence import PAGE, TOLD, ClientMessage, announce, read_told, write_presence
from baobab.tools.data.rows.claims import add_claims_of_all
from baobab.tools.data.rows.transactions import CHANGED
from baobab.tools.data.rows.visibility import Visibility
from baobab.tools.data.schema.catalogue import Catalogue, Catalogues, TableInfo
from baobab.tools.data.schema.channels import PRESENCE, allows
from baobab.tools.data.schemas import Row

T = TypeVar("T")

_POLL_SECONDS = 5.0
"""How often a feed looks without a notice, because a notice is lost if its process is killed before it sends it."""
_PATIENCE_SECONDS = 2.0
_MOST_FAILURES = 3
_RENEW_SECONDS = 20.0
_PAGE = 50
_MOST_REPLAYED = 1000
_MOST_REMOVED = 500
"""The changes of a deletion up to which its policies see the rows of other tables as they were."""
GONE = 1008

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A change as one reader sees it. Other readers may see nothing of it, or another operation."""

    op: Operation
    record: Row | None
    old_record: Row | None


class LiveFeeds:
    """The feeds of the apps that have listeners in this process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._feeds: dict[str, AppFeed] = {}
        self._process = services.ids.uuid()
        services.notices.subscribe(CHANGED, self._wake)
        services.notices.subscribe(TOLD, self._wake)

    def count(self, app_id: str) -> int:
        feed = self._feeds.get(app_id)
        return 0 if feed is None else len(feed.listeners)

    @contextlib.contextmanager
    def join(self, app_id: str, listener: Listener) -> Iterator["AppFeed"]:
        """Yields the app's feed with the listener added to it."""
        feed = self._feeds.get(app_id)
        if feed is None:
            feed = self._feeds[app_id] = AppFeed(self._services, app_id, self._process)
        feed.listeners.add(listener)
        try:
            yield feed
        finally:
            feed.listeners.discard(listener)
            if not feed.listeners and self._feeds.get(app_id) is feed:
                del self._feeds[app_id]
                feed.stop()

    def _wake(self, app_id: str) -> None:
        feed = self._feeds.get(app_id)
        if feed is not None:
            feed.wake()


class AppFeed:
    """Reads the change log of one app as it grows, once for all listeners."""

    def __init__(self, services: Services, app_id: str, process: str) -> None:
        self._services = services
        self._app_id = app_id
        self.process = process
        self.listeners: set[Listener] = set()
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._position: int | None = None
        """The number of the last change that was told."""
        self._message_position = 0
        """The number of the last message between clients that was told."""
        self._failures = 0
        """How often in a row the changes after this position could not be told."""
        self._renewed_at = 0.0
        self._task = asyncio.create_task(self._run(), name=f"changes of {app_id}")

    def wake(self) -> None:
        self._news.set()

    def stop(self) -> None:
        self._task.cancel()

    async def find_position(self) -> int:
        async with self._turn:
            await self._catch_up()
            return self._position or 0

    async def subscribe(self, listener: Listener, table: TableInfo, conditions: Filter, since: int | None) -> None:
        """Sends the listener the changes of a table from now on, or from a given change on."""
        async with self._turn:
            await self._catch_up()
            position = self._position or 0
            listener.tables[table.name] = conditions
            fields = {"filter": dict(conditions)} if conditions else {}
            listener.send(build_message("subscribed", table=table.name, **fields))
            if since is not None and since < position:
                await self._replay(listener, table.name, since, position)

    async def _replay(self, listener: Listener, name: str, since: int, position: int) -> None:
        catalogue = await self._services.of(Catalogues).get(self._app_id)
        first_changes = await self._read_changes(since, 1)
        if position - since > _MOST_REPLAYED or not first_changes or first_changes[0].id != since + 1:
            listener.send(build_message("resync", table=name, last_id=position))
            return
        while since < position:
            changes = [change for change in await self._read_changes(since, _PAGE) if change.id <= position]
            if not changes:
                return
            await self._tell(catalogue, [change for change in changes if change.table == name], [listener])
            since = changes[-1].id

    async def _run(self) -> None:
        while True:
            try:
                async with self._turn:
                    await self._catch_up()
                await self._renew_presence()
            except AppNotFound:
                for listener in self.listeners:
                    listener.end(GONE, "the app is gone")
            except (DatabaseUnavailable, BaobabError):
                await asyncio.sleep(_PATIENCE_SECONDS)
            except Exception:  # noqa: BLE001 - a feed that ends would leave its listeners in silence
                _log.exception("changes could not be told")
                await asyncio.sleep(_PATIENCE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._news.wait()
            self._news.clear()

    async def _renew_presence(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at < _RENEW_SECONDS or all(each.tracks_since is None for each in self.listeners):
            return
        self._renewed_at = now
        if await write_presence(self._services, self._app_id, lambda book: book.renew(self.process)):
            await announce(self._services, self._app_id)

    async def _catch_up(self) -> None:
        """Sends everything that has not been sent yet. The first time, it only finds the end of the log."""
        catalogue = await self._services.of(Catalogues).get(self._app_id)
        if not catalogue.version:
            self._position = 0
            return
        last, last_message, messages = await self._read(self._look, quick=True)
        for message in messages:
            for listener in list(self.listeners):
                _tell_message(listener, message, catalogue)
        if last_message > self._message_position and len(messages) == PAGE:
            self._news.set()
        self._message_position = last_message
        if self._position is None or last < self._position:
            # A lower number than before means that the app was restored from a backup.
            self._position = last
        while self._position < last:
            changes = await self._read_changes(self._position, _PAGE)
            if not changes or changes[0].id != self._position + 1:
                # Changes that were not sent yet have been removed, because the log had grown beyond its limit.
                for listener in list(self.listeners):
                    for name in listener.tables:
                        listener.send(build_message("resync", table=name, last_id=last))
            await self._tell_or_skip(catalogue, changes)
            self._position = changes[-1].id if changes else last

    async def _tell_or_skip(self, catalogue: Catalogue, changes: Sequence[Change]) -> None:
        """Sends changes. If that fails again and again although the log can be read, because a policy takes too long
        for these rows, for example, the listeners are told to read the tables again, and later changes are sent as
        usual.
        """
        listeners = list(self.listeners)
        try:
            await self._tell(catalogue, changes, listeners)
        except Exception:
            self._failures += 1
            if self._failures < _MOST_FAILURES:
                raise
            _log.exception("changes of rows were skipped")
            for name in {change.table for change in changes}:
                for listener in listeners:
                    if name in listener.tables:
                        listener.send(build_message("resync", table=name, last_id=changes[-1].id))
        self._failures = 0

    def _look(self, statements: Statements, store: DataStore) -> tuple[int, int, list[ClientMessage]]:
        last = self._log(statements, store).find_last()
        last_message, messages = read_told(
            statements, store, self._app_id, None if self._position is None else self._message_position
        )
        return last, last_message, messages

    def _log(self, statements: Statements, store: DataStore) -> LogReader:
        return LogReader(statements, store, self._app_id)

    async def _read_changes(self, after: int, limit: int) -> list[Change]:
        return await self._read(lambda statements, store: self._log(statements, store).read_after(after, limit))

    async def _read(self, work: Callable[[Statements, DataStore], T], *, quick: bool = False) -> T:
        app = await self._services.directory.app(self._app_id)
        store = self._services.stores_of(app.region).data
        return await store.read(self._app_id, lambda statements: work(statements, store), quick=quick, caller="feed")

    async def _tell(self, catalogue: Catalogue, changes: Sequence[Change], listeners: Sequence[Listener]) -> None:
        """Sends each listener the changes that it subscribed to and may see."""
        for change in changes:
            if change.old_row is None and change.new_row is None:
                # The change touched more rows than the log stores.
                for listener in listeners:
                    if change.table in listener.tables:
                        listener.send(build_message("resync", change.id, table=change.table, last_id=change.id))
        views: dict[tuple[int, Actor], _Seen] = {}
        for table in catalogue.tables.values():
            changes_of_table = [change for change in changes if change.table == table.name] if table.live_since else []
            readers = list({listener.actor for listener in listeners if table.name in listener.tables})
            if changes_of_table and readers:
                now = self._services.clock.now().isoformat()
                known_readers = await add_claims_of_all(self._services, self._app_id, catalogue, readers)

                def ask(
                    statements: Statements,
                    store: DataStore,
                    table: TableInfo = table,
                    changes_of_table: Sequence[Change] = changes_of_table,
                    readers: Sequence[Actor] = readers,
                    known_readers: Sequence[Actor] = known_readers,
                    now: str = now,
                ) -> dict[tuple[int, Actor], _Seen]:
                    visibility = Visibility(statements, store, self._app_id, catalogue, now)
                    # A listener is known by the actor that it came as.
                    listening = dict(zip(known_readers, readers, strict=True))
                    return {
                        (number, listening[reader]): each
                        for group, removed_rows in self._group_by_removed(statements, store, table, changes_of_table)
                        for (number, reader), each in _find_seen(visibility, table, group, known_readers, removed_rows)
                    }

                views |= await self._read(ask)
        if not views:
            return
        messages: dict[tuple[int, Operation, bool], Frame] = {}
        for change in changes:
            for listener in listeners:
                view = views.get((change.id, listener.actor))
                conditions = listener.tables.get(change.table)
                if view is None or conditions is None:
                    continue
                seen_change = _filter_seen(catalogue.table(change.table), conditions, change, view)
                if seen_change is None:
                    continue
                key = (change.id, seen_change.op, listener.actor.role == "service")
                if key not in messages:
                    messages[key] = _encode_change(change, seen_change)
                listener.send(messages[key])

    def _group_by_removed(
        self, statements: Statements, store: DataStore, table: TableInfo, changes: Sequence[Change]
    ) -> Iterator[tuple[list[Change], Mapping[str, Sequence[Row]]]]:
        """Groups changes by the rows of other tables that were deleted along with theirs, as parents are.

        Who may see a deleted row is judged by these as they were: a policy that asks the parent would refuse everybody.
        """
        deletions: dict[int, list[Change]] = {}
        for change in changes:
            if change.op == "DELETE":
                deletions.setdefault(change.action, []).append(change)
        others = [change for change in changes if change.op != "DELETE"]
        for action, deletions_of_action in deletions.items():
            removed_rows: dict[str, list[Row]] = {}
            changes_of_action = self._log(statements, store).read_action(action, _MOST_REMOVED)
            for change in changes_of_action if len(changes_of_action) <= _MOST_REMOVED else ():
                if change.op == "DELETE" and change.table != table.name and change.old_row is not None:
                    removed_rows.setdefault(change.table, []).append(change.old_row)
            if removed_rows:
                yield deletions_of_action, removed_rows
            else:
                others += deletions_of_action
        yield others, {}


def _find_seen(
    visibility: Visibility,
    table: TableInfo,
    changes: Sequence[Change],
    readers: Sequence[Actor],
    removed: Mapping[str, Sequence[Row]],
) -> Iterator[tuple[tuple[int, Actor], _Seen]]:
    has_address = len(table.key) == 1
    readers = [reader for reader in readers if has_address or reader.role == "service"]
    images = [(change, row) for change in changes for row in (change.old_row, change.new_row) if row is not None]
    visible = visibility.find(table, [row for _, row in images], readers, removed)
    visibility_of_images: dict[tuple[int, int], list[bool]] = {}
    for position, (change, row) in enumerate(images):
        for number in range(len(readers)):
            if (position, number) in visible:
                visibility_of_images.setdefault((change.id, number), [False, False])[int(row is change.new_row)] = True
    by_number = {change.id: change for change in changes}
    for (change_id, number), (saw, sees) in visibility_of_images.items():
        change, reader = by_number[change_id], readers[number]
        # When a row enters or leaves what a reader may see, the reader gets an insert or a delete, as in a list of
        # rows.
        op: Operation = "UPDATE" if saw and sees else "INSERT" if sees else "DELETE"
        old_row = change.old_row if saw else None
        if old_row is not None and reader.role != "service":
            old_row = {name: old_row[name] for name in table.key if name in old_row}
        yield (change_id, reader), _Seen(op, change.new_row if sees else None, old_row)


def _filter_seen(table: TableInfo, conditions: Filter, change: Change, seen: _Seen) -> _Seen | None:
    """Returns a change as the subscriber of a filter sees it: a row enters and leaves the filter with an insert and a
    delete. None if it was and is outside.
    """
    if not conditions:
        return seen
    had = seen.old_record is not None and fits_filter(table, conditions, change.old_row or {})
    has = seen.record is not None and fits_filter(table, conditions, change.new_row or {})
    if not had and not has:
        return None
    op: Operation = "UPDATE" if had and has else "INSERT" if has else "DELETE"
    return _Seen(op, seen.record if has else None, seen.old_record if had else None)


def _encode_change(change: Change, view: _Seen) -> Frame:
    return build_message(
        "change",
        change.id,
        table=change.table,
        op=view.op,
        record=view.record,
        old_record=view.old_record,
        timestamp=change.at,
    )


def _tell_message(listener: Listener, message: ClientMessage, catalogue: Catalogue) -> None:
    fields: Mapping[str, object] = message.fields
    channel = fields.get("channel")
    if fields.get("client_id") == listener.client_id:
        return
    # The rules of the moment count, whenever the client joined.
    if not allows(catalogue.channels, PRESENCE if channel is None else str(channel), "join", listener.actor):
        return
    if message.kind == "broadcast":
        if channel in listener.channels:
            listener.send(build_message("broadcast", **fields))
    elif listener.tracks_since is not None and message.number > listener.tracks_since and channel == listener.presence:
        listener.send(build_message(message.kind, **fields))
