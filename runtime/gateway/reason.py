"""Why a provider has refused: in its own words for the operator, and in what of them is safe for whoever asked."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from baobab.runtime.gateway.parameters import PARAMETERS
from baobab.runtime.gateway.wires.fields import resolve_path

LONGEST = 2000
"""Characters of a provider's words that are written down."""
_LONGEST_SAFE = 400
_LEFT_OUT = "[...]"
_MOST_WORDS, _MOST_NAMES, _LONGEST_NAME = 200, 4000, 64
_TOKEN = re.compile(r"\s+|[^\s'\"`,;!?(){}<>|=]+|.", re.DOTALL)
_ENDS = ".:"
_NUMBER = re.compile(r"[-+]?[0-9]{1,9}(?:[.,][0-9]{1,6})?%?")
# No provider's key is a word of so few letters, nor are hosts and what else has dots, digits or dashes in it.
_LONGEST_WORD, _LONGEST_CAPITALS = 20, 8
_COMPOUND = re.compile(r"(?:non|multi|pre|re|un|sub|built|well|base|too)-[a-z]{1,20}", re.IGNORECASE)


class ProviderRefusal(Exception):
    """The cause of an error that a provider's answer has led to.

    status, words: as the provider said them; for the log and traces only. told: what of the words may be passed on.
    """

    def __init__(self, status: int, words: str, safe_text: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status
        self.words = words
        self.safe_text = safe_text


def extract_safe_words(words: str, request: Mapping[str, Any] | None, secrets: tuple[str, ...] = ()) -> str:
    """The words, without what may be a key, a host, an account or the name of something behind the provider.

    What remains are ordinary words, numbers, names of parameters, and what the request itself says. hidden: what is
    left out though it is a word.
    """
    request_names = frozenset() if request is None else frozenset(_list_names(request))
    secret = frozenset(part.lower() for part in secrets if part)
    tokens: list[str] = []
    for number, found in enumerate(_TOKEN.finditer(words[:LONGEST])):
        if number > _MOST_WORDS * 2:
            break
        token = found[0]
        if token.isspace():
            tokens.append(" ")
            continue
        core = token.strip(_ENDS)
        mark = not core or (len(token) == 1 and not token.isalnum())
        safe = mark or core in request_names or _is_ordinary(core) or _is_path(core, request)
        if safe and core.lower() not in secret:
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
        # Scripts without capitals.
        return usual or not (core.islower() or core.isupper() or any(map(str.isupper, core)))
    return core in PARAMETERS or _NUMBER.fullmatch(core) is not None or _COMPOUND.fullmatch(core) is not None


def _is_path(core: str, request: Mapping[str, Any] | None) -> bool:
    """Whether it leads to something in the request, such as `messages.0.content`."""
    return request is not None and len(core) <= _LONGEST_NAME * 2 and resolve_path(core, request) == core


def _list_names(value: Any) -> Iterator[str]:
    """What the request calls things: fields, and short texts."""
    waiting, seen = [value], 0
    while waiting and seen < _MOST_NAMES:
        here = waiting.pop()
        seen += 1
        if isinstance(here, str):
            if len(here) <= _LONGEST_NAME:
                yield here
        elif isinstance(here, Mapping):
            yield from (name for name in here if isinstance(name, str) and len(name) <= _LONGEST_NAME)
            waiting.extend(here.values())
        elif isinstance(here, list):
            waiting.extend(here)
