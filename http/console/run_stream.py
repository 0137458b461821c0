"""Keeps the open page of a run up to date: renders the parts of it that the run's events change, as the events arrive.

Loading the whole page again would cost three calls of the app each time.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from baobab.http.console.graph_drawing import draw_graph
from baobab.http.console.run_view import build_timeline, find_states

_SOON_SECONDS, _LEAST_SECONDS = 0.1, 1.0
_SHARE = 10
"""After rendering, the stream rests at least this many times as long as the rendering took."""
_USAGE = ("input_tokens", "output_tokens", "cost_usd")


class RunParts:
    """The timeline and the drawing of a run, as its page shows them."""

    def __init__(
        self,
        run: Mapping[str, Any],
        graph: Mapping[str, Any],
        events: Sequence[Mapping[str, Any]],
        render: Callable[[Mapping[str, Any]], str],
        most: int,
    ) -> None:
        """events: those that the page shows. most: how many events may be added before the page must be loaded
        again.
        """
        self._run, self._graph, self._render = run, graph, render
        self._events = list(events)
        self._most = len(self._events) + most
        self._usage = {name: run["usage"][name] or 0 for name in _USAGE}
        self._shown_entries = self._list_entries()
        self._states = find_states(run, self._events)

    @property
    def is_full(self) -> bool:
        return len(self._events) > self._most

    def add(self, piece: bytes, now: datetime) -> bool:
        """Takes a piece of the run's stream. Returns whether it brought new events."""
        before = len(self._events)
        for frame in piece.decode().split("\n\n"):
            fields = dict(line.partition(": ")[::2] for line in frame.split("\n") if line and not line.startswith(":"))
            # Events with a model's text have no id, and are not in the timeline.
            if "id" not in fields:
                continue
            event = {"seq": int(fields["id"]), "type": fields["event"], "payload": json.loads(fields["data"])}
            # The stream does not say when it happened: it was at most a second ago.
            self._events.append({**event, "created_at": now})
            if event["type"] == "llm_token_usage" and event["seq"] > self._run["last_seq"]:
                self._usage = {name: self._usage[name] + event["payload"][name] for name in _USAGE}
        return len(self._events) > before

    def render_changes(self) -> bytes:
        """Returns an event with the HTML of the parts that the new events have changed."""
        entries, states = self._list_entries(), find_states(self._run, self._events)
        changed_entries = [entry for key, entry in entries.items() if self._shown_entries.get(key) != entry]
        values: dict[str, Any] = {
            "run": {**self._run, "usage": self._usage},
            "entries": changed_entries,
            "drawing": None,
        }
        if states != self._states:
            values["drawing"] = draw_graph(self._graph, states)
        self._shown_entries, self._states = entries, states
        return b"event: parts\ndata: %s\n\n" % to_json(self._render(values))

    def _list_entries(self) -> dict[Any, dict[str, Any]]:
        entries = build_timeline(self._events, self._graph)
        return {entry["step"] if entry["kind"] == "step" else -entry["seq"]: entry for entry in entries}


async def follow_parts(
    pieces: AsyncGenerator[bytes, None], parts: RunParts, read_clock: Callable[[], datetime]
) -> AsyncGenerator[bytes, None]:
    """Yields the pieces of a run's stream and, at most once a second, the parts of the page that they change."""
    loop = asyncio.get_running_loop()
    reading: asyncio.Task[bytes | None] | None = None
    due: float | None = None
    free_at = 0.0
    try:
        while True:
            reading = reading or asyncio.create_task(_read_next(pieces))
            await asyncio.wait((reading,), timeout=None if due is None else max(0.0, due - loop.time()))
            if due is not None and loop.time() >= due:
                if parts.is_full:
                    yield b"event: changed\ndata: {}\n\n"
                    return
                began_at, due = loop.time(), None
                changes = parts.render_changes()
                free_at = loop.time() + max(_LEAST_SECONDS, _SHARE * (loop.time() - began_at))
                yield changes
            if reading.done():
                piece, reading = reading.result(), None
                if piece is None:
                    return
                yield piece
                if parts.add(piece, read_clock()) and due is None:
                    due = max(loop.time() + _SOON_SECONDS, free_at)
    finally:
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await pieces.aclose()


async def _read_next(pieces: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(pieces, None)
