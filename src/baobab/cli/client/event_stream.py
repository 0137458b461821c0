"""Streams of server-sent events that go on where they broke off."""

import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import IO

import click

from baobab.cli.client.server import Answer, Server, Unreachable

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_OK, _TOO_MANY, _SERVER_ERROR = 200, 429, 500


def follow_events(
    server: Server, path: str, query: Mapping[str, str], *, is_quiet: bool = False
) -> Iterator[str | None]:
    """Yields the data of each event for ever, and None whenever a connection is made.

    is_quiet: whether nothing is said of connections that broke. Raises ClientError if the server refuses, which another
    attempt would not change.
    """
    last_id, pause = "", _FIRST_PAUSE
    while True:
        headers = {"accept": "text/event-stream", **({"last-event-id": last_id} if last_id else {})}
        reason: object = "the stream ended"
        try:
            with server.open_answer("GET", path, query=query, headers=headers) as (status, fields, stream):
                if status != _OK:
                    refusal = server.read_refusal(Answer(status, fields, stream.read(2**20)))
                    if status < _SERVER_ERROR and status != _TOO_MANY:
                        raise refusal
                    reason = refusal.message
                else:
                    for event_id, data in _read_events(stream, last_id):
                        last_id, pause = event_id, _FIRST_PAUSE
                        yield data
        except (OSError, HTTPException) as exc:
            reason = exc
        except Unreachable as exc:
            reason = exc.message
        if not is_quiet:
            click.echo(f"Connecting again in {pause:.0f} s: {reason}", err=True)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _read_events(stream: IO[bytes], last_id: str) -> Iterator[tuple[str, str | None]]:
    """Yields the id and the data of each event; None as the data of the first comment, with which streams begin."""
    data: list[str] = []
    has_begun = False
    for raw_line in stream:
        line = raw_line.decode(errors="replace").rstrip("\r\n")
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line and data:
            yield last_id, "\n".join(data)
            data = []
        elif name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
        elif not name and not has_begun:
            has_begun = True
            yield last_id, None
