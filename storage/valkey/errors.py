"""Errors of Valkey commands."""

from __future__ import annotations


class ValkeyUnavailable(Exception):
    """There was no reply, or an error. If the connection broke meanwhile, the command may have been executed.

    `reason` is for the log: it may hold messages of the server or the operating system.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FunctionMissing(ValkeyUnavailable):
    """The server does not know the function, so nothing was done."""


def from_reply(text: str) -> ValkeyUnavailable:
    kind = FunctionMissing if text == "ERR Function not found" else ValkeyUnavailable
    return kind(text)
