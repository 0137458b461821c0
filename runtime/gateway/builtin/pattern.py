"""The `pattern` of a JSON schema, as far as a model must understand it: to write a text that has it, and to know one.

Patterns come from callers, and Python's own engine can be made to run for hours by one. This one knows characters,
classes, groups, alternatives and repetition; it follows all ways through a text at once and gives up after so many
steps. What it does not know (looking around, references, boundaries) it refuses.
"""

import math
import string
from dataclasses import dataclass

MOST_LENGTH = 256
_MOST_DEPTH = 8
_MOST_REPEATS = 256
_MOST_STEPS = 20_000

_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SPACE = frozenset(" \t\n\r\f\v")
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
# What is written where a class leaves the choice; the first that is allowed.
_PREFERRED = "a0A_- x1"


class PatternRefused(ValueError):
    """The pattern is not one that the built-in model understands."""


@dataclass(frozen=True, slots=True)
class _Characters:
    members: frozenset[str]
    negated: bool = False

    def size(self, more: int) -> int:
        return 1

    def __contains__(self, character: str) -> bool:
        return (character in self.members) is not self.negated

    def example(self, more: int) -> str:
        if not self.negated:
            return next((one for one in _PREFERRED if one in self.members), min(self.members, default=""))
        return next((one for one in _PREFERRED + string.printable if one not in self.members), "\u00e9")


@dataclass(frozen=True, slots=True)
class _Repeated:
    what: "_Characters | _Group"
    least: int
    most: float

    def size(self, more: int) -> int:
        return self.what.size(more) * self._times(more)

    def example(self, more: int) -> str:
        return self.what.example(more) * self._times(more)

    def _times(self, more: int) -> int:
        return int(min(self.least + more, self.most)) if more else self.least


@dataclass(frozen=True, slots=True)
class _Group:
    alternatives: tuple[tuple[_Repeated, ...], ...]

    def size(self, more: int) -> int:
        """Characters of the example, where each part that may be repeated is so many times more."""
        return sum(part.size(more) for part in self.alternatives[0])

    def example(self, more: int) -> str:
        return "".join(part.example(more) for part in self.alternatives[0])


class Pattern:
    """A pattern that was understood. Raises PatternRefused otherwise."""

    def __init__(self, source: str) -> None:
        if len(source) > MOST_LENGTH:
            raise PatternRefused(f"a pattern may have {MOST_LENGTH} characters")
        # As JSON schema has it, a pattern may be found anywhere unless it is anchored.
        self._at_start = source.startswith("^")
        self._at_end = source.endswith("$") and not source.endswith("\\$")
        inner = source[self._at_start : len(source) - self._at_end]
        reader = _Reader(inner)
        self._group = reader.group(0)
        if reader.rest:
            raise PatternRefused(f"the pattern {source!r} has a `)` without its `(`")
        # `^a|b$` anchors each alternative at one end only; a group of its own says what was meant.
        if (self._at_start or self._at_end) and len(self._group.alternatives) > 1:
            raise PatternRefused(f"the alternatives of {source!r} must stand in a group")

    def example(self, least: int = 0) -> str:
        """A shortest text that has the pattern, by its first alternative where it has several.

        least: characters that it should have where the pattern allows. Raises PatternRefused for one that is too long.
        """
        more = 0
        while more < least and self._group.size(more) < least:
            more += 1
        if self._group.size(more) > MOST_LENGTH:
            raise PatternRefused("the pattern asks for too long a text")
        return self._group.example(more)

    def found_in(self, text: str) -> bool:
        """False also where finding it would take too long."""
        if len(text) > MOST_LENGTH:
            return False
        walk = _Walk(text)
        starts = {0} if self._at_start else set(range(len(text) + 1))
        ends = walk.through(self._group, starts)
        return not walk.exhausted and (len(text) in ends if self._at_end else bool(ends))


class _Walk:
    """All ways through a text at once: from a set of positions to the set of those where a part may end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._steps = 0

    @property
    def exhausted(self) -> bool:
        return self._steps > _MOST_STEPS

    def through(self, part: _Characters | _Group, starts: set[int]) -> set[int]:
        self._steps += 1 + len(starts)
        if self.exhausted:
            return set()
        if isinstance(part, _Characters):
            return {at + 1 for at in starts if at < len(self._text) and self._text[at] in part}
        ends: set[int] = set()
        for sequence in part.alternatives:
            reached = starts
            for repeated in sequence:
                reached = self._repeat(repeated, reached)
            ends |= reached
        return ends

    def _repeat(self, repeated: _Repeated, starts: set[int]) -> set[int]:
        reached = starts
        for _ in range(repeated.least):
            reached = self.through(repeated.what, reached)
        ends, times = set(reached), float(repeated.least)
        while reached and times < repeated.most:
            reached = self.through(repeated.what, reached) - ends
            ends |= reached
            times += 1
        return ends


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    @property
    def rest(self) -> str:
        return self._source[self._at :]

    def group(self, depth: int) -> _Group:
        if depth > _MOST_DEPTH:
            raise PatternRefused("the pattern's groups are nested too deeply")
        alternatives: list[tuple[_Repeated, ...]] = []
        sequence: list[_Repeated] = []
        while self.rest and not self.rest.startswith(")"):
            if self._take("|"):
                alternatives.append(tuple(sequence))
                sequence = []
            else:
                sequence.append(self._repeated(self._one(depth)))
        return _Group((*alternatives, tuple(sequence)))

    def _one(self, depth: int) -> _Characters | _Group:
        if self._take("("):
            if not self._take("?:") and self.rest.startswith("?"):
                raise PatternRefused("a pattern may group with `(` and `(?:` only")
            group = self.group(depth + 1)
            self._expect(")")
            return group
        if self._take("["):
            return self._class()
        character = self._next()
        if character == "\\":
            return self._escaped()
        if character == ".":
            return _Characters(frozenset("\n\r"), negated=True)
        if character in "^$*+?{":
            raise PatternRefused(f"`{character}` cannot stand here in a pattern")
        return _Characters(frozenset(character))

    def _escaped(self) -> _Characters:
        letter = self._next()
        if letter.lower() in _CLASSES:
            return _Characters(_CLASSES[letter.lower()], negated=letter.isupper())
        if letter.isalnum() and letter not in _CONTROLS:
            raise PatternRefused(f"`\\{letter}` is not known in a pattern")
        return _Characters(frozenset(_CONTROLS.get(letter, letter)))

    def _class(self) -> _Characters:
        negated, members = self._take("^"), set[str]()
        while not self.rest.startswith("]"):
            one = self._member()
            if len(one) == 1 and len(self.rest) > 1 and self.rest[0] == "-" and self.rest[1] != "]":
                self._expect("-")
                last = self._member()
                if len(last) != 1 or not ord(min(one)) <= ord(min(last)) <= ord(min(one)) + 0xFFFF:
                    raise PatternRefused("a pattern's range must lead from one character to a later one")
                members.update(map(chr, range(ord(min(one)), ord(min(last)) + 1)))
            else:
                members.update(one)
        self._expect("]")
        if not members:
            raise PatternRefused("a pattern's class is empty")
        return _Characters(frozenset(members), negated)

    def _member(self) -> frozenset[str]:
        character = self._next()
        if character != "\\":
            return frozenset(character)
        escaped = self._escaped()
        if escaped.negated:
            raise PatternRefused("a pattern's class may not hold a negated one")
        return escaped.members

    def _repeated(self, what: _Characters | _Group) -> _Repeated:
        least, most = 1, 1.0
        if self._take("*"):
            least, most = 0, math.inf
        elif self._take("+"):
            most = math.inf
        elif self._take("?"):
            least = 0
        elif self._take("{"):
            bounds, closed, _ = self.rest.partition("}")
            low, comma, high = bounds.partition(",")
            if not closed or not _is_count(low) or (high and not _is_count(high)):
                raise PatternRefused("`{` in a pattern needs how often, as in `{2}`, `{2,}` or `{2,5}`")
            self._at += len(bounds) + 1
            least = int(low)
            most = float(high) if high else math.inf if comma else float(least)
            if most < least:
                raise PatternRefused("`{` in a pattern has its bounds the wrong way round")
        self._take("?")  # lazy or not, the same texts have the pattern
        return _Repeated(what, least, most)

    def _take(self, wanted: str) -> bool:
        taken = self._source.startswith(wanted, self._at)
        self._at += len(wanted) * taken
        return taken

    def _expect(self, wanted: str) -> None:
        if not self._take(wanted):
            raise PatternRefused(f"the pattern lacks a `{wanted}`")

    def _next(self) -> str:
        if not self.rest:
            raise PatternRefused("the pattern ends too early")
        self._at += 1
        return self._source[self._at - 1]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= _MOST_REPEATS
