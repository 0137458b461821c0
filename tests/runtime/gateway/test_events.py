"""Events are told apart however they come, and what is held of one is gone through once only."""

from collections.abc import AsyncIterator

import pytest

from baobab.runtime.gateway.events import split_events

WHOLE = b'data: {"a": 1}\r\n\r\n: still there\n\nevent: b\r\ndata: {"b": 2}\r\n\r\ndata: c'
EVENTS = [b'data: {"a": 1}\n\n', b": still there\n\n", b'event: b\ndata: {"b": 2}\n\n', b"data: c\n\n"]


async def split_pieces(whole: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(whole), size):
        yield whole[at : at + size]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 16, 1000])
async def test_events_are_the_same_in_whatever_pieces_they_come(size: int) -> None:
    assert [event async for event in split_events(split_pieces(WHOLE, size))] == EVENTS


async def test_an_event_in_very_many_pieces_takes_no_longer_than_in_one() -> None:
    # Gone through anew with each piece, this would take minutes.
    event = b"data: " + b"x" * 2**21 + b"\n\n"
    assert [split_event async for split_event in split_events(split_pieces(event, 8))] == [event]
