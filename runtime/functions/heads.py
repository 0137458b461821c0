"""Checks the head of a response that a program has made."""

import re
from collections.abc import Iterable

_MOST_BYTES = 2**16
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00\r\n]*")
_OF_ONE_HOP = frozenset(
    {
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class BadHead(Exception):
    """No response begins like this."""


class HeadTooLarge(Exception):
    """The headers have more bytes than may be sent."""

    def __init__(self) -> None:
        super().__init__(f"The response's headers have more than {_MOST_BYTES} bytes.")


def read_headers(status: object, headers: Iterable[tuple[object, object]]) -> list[tuple[str, str]]:
    """Returns the headers with names in lower case, without those of the connection, which the server writes itself.

    Raises BadHead for a status or a header that HTTP does not have, and HeadTooLarge.
    """
    if type(status) is not int or not 200 <= status <= 599:
        raise BadHead
    pairs: list[tuple[str, str]] = []
    size = 0
    for name, value in headers:
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadHead
        size += len(name) + len(value)
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadHead
        if name.lower() not in _OF_ONE_HOP:
            pairs.append((name.lower(), value))
    if size > _MOST_BYTES:
        raise HeadTooLarge
    return pairs
