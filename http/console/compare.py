"""Compares texts: line by line, or by words."""

import re
from difflib import SequenceMatcher

_LARGEST_DIFF = 4000
"""The lines on each side above which both texts are shown one below the other instead of as a diff."""


def compare_texts(before: str, after: str) -> list[tuple[str, str]]:
    """Returns the lines of two texts, each with `-`, `+` or a space before it."""
    old, new = before.split("\n"), after.split("\n")
    if max(len(old), len(new)) > _LARGEST_DIFF:
        return [*(("-", line) for line in old), *(("+", line) for line in new)]
    rows: list[tuple[str, str]] = []
    # Without `autojunk`, which finds no common lines in long texts that repeat themselves.
    for tag, old_start, old_end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += [(" ", line) for line in old[old_start:old_end]]
        else:
            rows += [("-", line) for line in old[old_start:old_end]]
            rows += [("+", line) for line in new[new_start:new_end]]
    return rows


_MOST_WORDS = 4000
"""The words on each side above which two texts are not compared by words."""
_MUCH = 0.6
"""The part of a text that has changed above which a difference by words is harder to read than the new text."""
# A word keeps the space behind it, so that several words that change in a row are one piece.
_WORDS = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")


def compare_words(before: str, after: str) -> list[tuple[str, str]] | None:
    """Returns the pieces of two texts, each with `-`, `+` or a space before it. None where so much has changed that the
    new text alone is easier to read.
    """
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if not old or not new or max(len(old), len(new)) > _MOST_WORDS:
        return None
    pieces: list[tuple[str, str]] = []
    changed_count = 0
    for tag, old_start, old_end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            pieces.append((" ", "".join(old[old_start:old_end])))
            continue
        changed_count += max(old_end - old_start, new_end - new_start)
        pieces += [("-", "".join(old[old_start:old_end]))] if old_end > old_start else []
        pieces += [("+", "".join(new[new_start:new_end]))] if new_end > new_start else []
    return None if changed_count > _MUCH * max(len(old), len(new)) else pieces
