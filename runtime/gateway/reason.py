"""A provider's reason for a refusal: its own words for the operator, and the safe part of them for the caller."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from baobab.runtime.gateway.parameters import PARAMETERS
from baobab.runtime.gateway.wires.fields import resolve_path

LONGEST = 2000
"""The most characters of a provider's words that are logged."""
_LONGEST_SAFE = 400
_LEFT_OUT = "[...]"
_MOST_WORDS, _MOST_NAMES, _LONGEST_NAME = 200, 4000, 64
_TOKEN = re.compile(r"\s+|[^\s'\"`,;!?(){}<>|=]+|.", re.DOTALL)
_ENDS = ".:"
_NUMBER = re.compile(r"[-+]?[0-9]{1,9}(?:[.,][0-9]{1,6})?%?")
# A word of so few letters is no key, and hosts and other secrets have dots, digits or dashes in them.
_LONGEST_WORD, _LONGEST_CAPITALS = 20, 8
_COMPOUND = re.compile(r"(?:non|multi|pre|re|un|sub|built|well|base|too)-[a-z]{1,20}", re.IGNORECASE)


class ProviderRefusal(Exception):
    """A provider's refusal; it is the cause of one of the gateway's errors.

    status, words: the provider's own, only for logs and traces. safe_text: the part of the words that may be passed on.
    """

    def __init__(self, status: int, words: str, safe_text: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status
        self.words = words
        self.safe_text = safe_text


def extract_safe_words(words: str, request: Mapping[str, Any] | None, secrets: tuple[str, ...] = ()) -> str:
    """Returns the words without anything that may be a key, a host, an account or an internal name of the provider.

    Ordinary words, numbers, names of parameters and names from the request remain. secrets: words that are left out
    even if they are ordinary.
    """
    request_names = frozenset() if request is None else frozenset(_list_names(request))
    secret_words = frozenset(part.lower() for part in secrets if part)
    tokens: list[str] = []
    for number, match in enumerate(_TOKEN.finditer(words[:LONGEST])):
        if number > _MOST_WORDS * 2:
            break
        token = match[0]
        if token.isspace():
            tokens.append(" ")
            continue
        core = token.strip(_ENDS)
        mark = not core or (len(token) == 1 and not token.isalnum())
        safe = mark or core in request_names or _is_ordinary(core) or _is_path(core, request)
        if safe and core.lower() not in secret_words:
            tokens.append(token)
        elif not tokens or not tokens[-1].startswith(_LEFT_OUT):
            tokens.append(_LEFT_OUT)
    text = "".join(tokens).strip()
    if not re.search(r"[^\W\d_]{2}", text.replace(_LEFT_OUT, "")):
        return ""
    return text if len(text) <= _LONGEST_SAFE else text[:_LONGEST_SAFE].rsplit(" ", 1)[0] + " ..."


def _is_ordinary(core: str) -> bool:
    if core.isalpha() and len(core) <= _LONGEST_WORD:
        usual = core.islower() or core[1:].islower() or (core.isupper() and len(core) <= _LONGEST_CAPITALS)
        # Words in scripts without capitals are ordinary too.
        return usual or not (core.islower() or core.isupper() or any(map(str.isupper, core)))
    return core in PARAMETERS or _NUMBER.fullmatch(core) is not None or _COMPOUND.fullmatch(core) is not None


def _is_path(core: str, request: Mapping[str, Any] | None) -> bool:
    """Returns whether this is the path of something in the request, such as `messages.0.content`."""
    return request is not None and len(core) <= _LONGEST_NAME * 2 and resolve_path(core, request) == core


def _list_names(value: Any) -> Iterator[str]:
    """Yields the names in the request: its fields and short texts."""
    pending, visited_count = [value], 0
    while pending and visited_count < _MOST_NAMES:
        item = pending.pop()
        visited_count += 1
        if isinstance(item, str):
            if len(item) <= _LONGEST_NAME:
                yield item
        elif isinstance(item, Mapping):
            yield from (name for name in item if isinstance(name, str) and len(name) <= _LONGEST_NAME)
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
