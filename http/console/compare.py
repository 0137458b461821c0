"""Compares texts line by line."""

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
