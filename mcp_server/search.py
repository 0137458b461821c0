"""Search among tools: ranks them by the words of a question, beside what no tool of a client does."""

import asyncio
import tomllib
from collections.abc import Collection, Container, Mapping, Sequence, Set
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from baobab.tools.core.call import Tool
from baobab.tools.core.errors import Unavailable, name_operations
from baobab.tools.core.text_index import IndexedText, TextIndex, find_groups
from baobab.tools.system.unbuilt import UNBUILT, Unbuilt

LANGUAGES = ("en", "de", "es", "fr")

# How much each part of a tool's text counts.
_NAME, _SUMMARY, _WORDS, _DESCRIPTION, _ARGUMENTS = 3.0, 2.0, 2.0, 0.5, 0.3
_OFTEN_USED = 1.15
"""How much more a tool counts that models are shown first, because most questions are about those."""
_ELSEWHERE = 0.95
"""How much less something counts that a client cannot call, because most questions are about what it can."""
NEAR = 0.7
"""The share of the best score from which on another answer is likely to be what was meant."""
_OPPOSITE = 0.85
"""How much less a tool counts that does the opposite of what a question wants done."""
_OPPOSITES: Mapping[str, frozenset[str]] = {
    "create": frozenset(("delete", "revoke", "remove", "drop", "erase", "cancel", "flush")),
    "delete": frozenset(("create", "add", "init", "start", "put", "insert")),
    "stop": frozenset(("create", "run", "start", "retry", "resume")),
    "start": frozenset(("delete", "cancel", "stop", "abort")),
    "approve": frozenset(("reject",)),
    "reject": frozenset(("approve",)),
}
"""By a group of synonyms of questions, the last words of the names of tools that do the opposite."""
_LEAST = 0.25
"""The score below which a text is not an answer."""
_NAMED = 2.0
"""The score of a tool whose name is the question: above all others."""
_MOST_WAITING = 200

Candidate = Tool | Unbuilt


class Match(NamedTuple):
    """A tool or a missing feature that matches a question, and how well: 1 at best, as a share of the best match."""

    candidate: Candidate
    likeness: float


@lru_cache(1)
def read_search_words() -> Mapping[str, Mapping[str, str]]:
    """Reads what people call each tool or missing feature, by its name and the language, from the files of the
    domains.
    """
    words: dict[str, Mapping[str, str]] = {}
    for domain in files("baobab.tools").iterdir():
        file = domain / "search_words.toml"
        if file.is_file():
            words |= tomllib.loads(file.read_text(encoding="utf-8"))
    return words


class ToolIndex:
    """An index of all tools that have search words, and of the features that are not built yet. It is made at the first
    search, in a thread, of texts alone: the same question always finds the same.
    """

    def __init__(self, tools: Collection[Tool]) -> None:
        words = read_search_words()
        self._candidates: Sequence[Candidate] = [*(tool for tool in tools if tool.name in words), *UNBUILT]
        self._waiting = 0
        self._reading: asyncio.Task[TextIndex] | None = None

    async def rank(self, question: str, offered: Container[str]) -> list[Match]:
        """Returns what matches a question, best first. A question that is the name of a tool finds it first.

        offered: the names of the tools that the client may call. Raises Unavailable if too many searches wait.
        """
        if self._waiting >= _MOST_WAITING:
            raise Unavailable("Too many searches for tools wait already.")
        self._waiting += 1
        try:
            if self._reading is None:
                self._reading = asyncio.create_task(asyncio.to_thread(_index_texts, self._candidates))
            index = await asyncio.shield(self._reading)
            scores = await asyncio.to_thread(index.scores, question)
            groups = await asyncio.to_thread(find_groups, question) & _OPPOSITES.keys()
        finally:
            self._waiting -= 1
        matches = []
        for score, candidate in zip(scores, self._candidates, strict=True):
            name = get_name(candidate)
            if name == question.strip():
                matches.append((_NAMED, name, candidate))
            elif score >= _LEAST:
                matches.append((score * _weigh(candidate, offered, groups), name, candidate))
        matches.sort(key=lambda match: (-match[0], match[1]))
        return [Match(candidate, score / matches[0][0]) for score, _, candidate in matches]


def _weigh(candidate: Candidate, offered: Container[str], groups: Set[str]) -> float:
    """groups: what the question wants done, of the groups that have an opposite."""
    if get_name(candidate) not in offered:
        return _ELSEWHERE
    if not isinstance(candidate, Tool):
        return 1.0
    verb = candidate.name.rpartition("_")[2]
    is_opposite = any(verb in _OPPOSITES[group] for group in groups) and len(groups) == 1
    return (_OFTEN_USED if candidate.start is True else 1.0) * (_OPPOSITE if is_opposite else 1.0)


def get_name(candidate: Candidate) -> str:
    return candidate.name if isinstance(candidate, Tool) else candidate.what


def _index_texts(candidates: Sequence[Candidate]) -> TextIndex:
    return TextIndex([_describe(each) for each in candidates])


def _describe(candidate: Candidate) -> IndexedText:
    words = read_search_words()[get_name(candidate)]
    phrases = [(language, phrase) for language, text in words.items() for phrase in text.split(", ")]
    parts = [(_WORDS, language, text) for language, text in words.items()]
    if isinstance(candidate, Unbuilt):
        return IndexedText([*parts, (_SUMMARY, "en", candidate.what)], phrases)
    toolset, arguments = candidate.toolset, candidate.input_schema.get("properties", {})
    about_arguments = " ".join(f"{name} {schema.get('description', '')}" for name, schema in arguments.items())
    parts += [
        (_NAME, "en", candidate.name),
        (_SUMMARY, "en", name_operations(candidate.summary)),
        (_DESCRIPTION, "en", f"{name_operations(candidate.description)} {toolset.name} {toolset.description}"),
        (_ARGUMENTS, "en", name_operations(about_arguments)),
    ]
    return IndexedText(parts, [*phrases, ("en", candidate.name.replace("_", " ")), ("en", candidate.title)])
