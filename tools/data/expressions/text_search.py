"""Reads what is searched for in texts, as PostgREST writes it, into a tree for both databases (storage/data/english).

    fts      `'fat' & ('rat' | 'cat')`, `!dog`, `super:*`, `fat <-> cat`, `fat <2> cat`; words side by side mean `&`
    plfts    all of the words
    phfts    the words one after the other
    wfts     as search engines have it: `"fat cat" or rat -dog`

Stop words are left out here, so that both databases are asked for the same words at the same distances.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from baobab.storage.data.english import LONGEST_WORD, is_stop_word, split_words
from baobab.tools.core import BadRequest
from baobab.tools.data.errors import InvalidFilter

Search = list[Any] | None
"""The tree of a search. None for a search of nothing but stop words."""
_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>'(?:[^']|'')*')|<(?P<distance>-|\d{1,5})>|(?P<operator>[&|!()])|(?P<bare>[^\s&|!()<':]+))"""
    r"""(?P<flags>:[*a-dA-D]+)?""",
    re.DOTALL,
)
_WEB = re.compile(r"""(-?)(?:"([^"]*)"?|([^\s"]+))""")
_MOST_WORDS = 100
_DEEPEST = 20
_FARTHEST = 16_384


def read_search(operator: str, text: str) -> Search:
    """Reads a search of an operator. Raises InvalidFilter for an `fts` query with a mistake."""
    words = split_words(text)
    if len(words) > _MOST_WORDS:
        raise BadRequest(f"A search has at most {_MOST_WORDS} words.")
    if any(len(word.encode()) > LONGEST_WORD for word in words):
        raise BadRequest(f"A word of a search has at most {LONGEST_WORD} bytes.")
    return _READERS[operator](text)


def write_tsquery(search: Search) -> str:
    """Writes a search as a tsquery of Postgres."""
    if search is None:
        return ""
    match search:
        case ["word", word, goes_on]:
            # No word contains a quote.
            return f"'{word}'{':*' if goes_on else ''}"
        case ["not", part]:
            return f"!({write_tsquery(part)})"
        case ["phrase", first, *later_words]:
            return write_tsquery(first) + "".join(
                f" <{distance}> {write_tsquery(part)}" for distance, part in later_words
            )
    sign = " & " if search[0] == "and" else " | "
    return f"({sign.join(map(write_tsquery, search[1:]))})"


def _read_plain(text: str) -> Search:
    return _join("and", [_word(word) for word in split_words(text)])


def _read_phrase(text: str) -> Search:
    return _follow([(1, _word(word)) for word in split_words(text)])


def _read_web(text: str) -> Search:
    """Reads a search as web search engines do. Every text is valid: what is not understood is ignored."""
    choices: list[list[Search]] = [[]]
    for minus, phrase, bare in _WEB.findall(text):
        if bare.lower() == "or" and not minus:
            choices.append([])
            continue
        part = _read_phrase(phrase or bare)
        choices[-1].append(["not", part] if minus and part is not None else part)
    # An `or` at the beginning, at the end or beside another one joins nothing.
    return _join("or", [_join("and", parts) for parts in choices])


class _QueryReader:
    """Parses `fts`: `!` binds closest, then `<->`, `&` and `|`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> Search:
        query = self._read_choice()
        if self._peek() is not None:
            raise self._refuse()
        return query

    def _read_choice(self) -> Search:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise BadRequest(f"A search is nested at most {_DEEPEST} deep.")
        parts = [self._read_all()]
        while self._take("|"):
            parts.append(self._read_all())
        self._depth -= 1
        return _join("or", parts)

    def _read_all(self) -> Search:
        parts = [self._read_row()]
        while self._take("&") or self._begins_operand():
            parts.append(self._read_row())
        return _join("and", parts)

    def _read_row(self) -> Search:
        parts = [(1, self._read_operand())]
        while (token := self._peek()) is not None and token["distance"]:
            self._at = token.end()
            distance = 1 if token["distance"] == "-" else int(token["distance"])
            if distance > _FARTHEST:
                raise InvalidFilter(f"Words stand at most {_FARTHEST} apart.")
            parts.append((distance, self._read_operand()))
        return _follow(parts) if len(parts) > 1 else parts[0][1]

    def _read_operand(self) -> Search:
        token = self._peek()
        if token is None or not self._begins_operand():
            raise self._refuse()
        self._at = token.end()
        if token["operator"] == "!":
            self._depth += 1
            if self._depth > _DEEPEST:
                raise BadRequest(f"A search is nested at most {_DEEPEST} deep, and each `!` counts.")
            part = self._read_operand()
            self._depth -= 1
            return None if part is None else ["not", part]
        if token["operator"] == "(":
            inner = self._read_choice()
            if not self._take(")"):
                raise self._refuse()
            return inner
        flags = token["flags"] or ""
        if flags.strip(":*"):
            raise InvalidFilter(f"`{token[0].strip()[:40]}`: words of a text have no weights here.")
        words = split_words(token["quoted"] or token["bare"])
        return _follow([(1, _word(word, goes_on="*" in flags)) for word in words])

    def _begins_operand(self) -> bool:
        token = self._peek()
        return token is not None and bool(token["quoted"] or token["bare"] or token["operator"] in ("!", "("))

    def _take(self, operator: str) -> bool:
        token = self._peek()
        if token is None or token["operator"] != operator:
            return False
        self._at = token.end()
        return True

    def _peek(self) -> re.Match[str] | None:
        token = _TOKEN.match(self._text, self._at)
        if token is None and self._text[self._at :].strip():
            raise self._refuse()
        return token

    def _refuse(self) -> InvalidFilter:
        return InvalidFilter(
            f"`{self._text[:60]}` is not a search: it is wrong after `{self._text[: self._at][-30:]}`.",
            remediation="Write `fts.'fat' & ('rat' | 'cat')`, or use `wfts` for what a person types.",
        )


def _word(word: str, *, goes_on: bool = False) -> Search:
    return None if is_stop_word(word) else ["word", word, goes_on]


def _join(kind: str, parts: list[Search]) -> Search:
    present = [part for part in parts if part is not None]
    return [kind, *present] if len(present) > 1 else present[0] if present else None


def _follow(parts: list[tuple[int, Search]]) -> Search:
    """Reads words that follow each other, each with its distance to the word before. Stop words leave gaps."""
    steps: list[Any] = []
    gap = 0
    for distance, part in parts:
        gap += distance
        if part is None:
            continue
        if not steps:
            steps.append(part)
        elif part[0] == "phrase":
            steps += [[gap, part[1]], *part[2:]]
        else:
            steps.append([gap, part])
        gap = 0
    for part in [step if step is steps[0] else step[1] for step in steps] if len(steps) > 1 else []:
        if part[0] != "word" and not (part[0] == "or" and all(each[0] == "word" for each in part[1:])):
            raise InvalidFilter(
                "Only words, or words joined by `|`, follow each other by `<->`.",
                remediation="Join the parts by `&` and `|` outside of what follows each other.",
            )
    if len(steps) == 1:
        result: Search = steps[0]
        return result
    return ["phrase", *steps] if steps else None


_READERS: Mapping[str, Callable[[str], Search]] = {
    "fts": lambda text: _QueryReader(text).read() if text.strip() else None,
    "plfts": _read_plain,
    "phfts": _read_phrase,
    "wfts": _read_web,
}
OPERATORS = tuple(_READERS)
