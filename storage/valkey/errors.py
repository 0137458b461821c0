"""What a command can end in besides its reply."""

from __future__ import annotations


class ValkeyUnavailable(Exception):
    """No reply, or one that says no. Where the connection broke meanwhile, the command may have been carried out.

    `reason` is for the log: it may hold what the server or the operating system said.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FunctionMissing(ValkeyUnavailable):
    """The server does not know the function, so that nothing was done."""


def from_reply(text: str) -> ValkeyUnavailable:
    kind = FunctionMissing if text == "ERR Function not found" else ValkeyUnavailable
    return kind(text)
