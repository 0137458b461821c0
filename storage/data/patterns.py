"""SQL's `like` in linear time. SQLite's own compares again from each place, and nothing can stop it meanwhile."""

from functools import lru_cache

from baobab.storage.sql.deadline import Check

_ASK_EVERY = 4096
_MOST_TRIES = 256
"""So many places of a segment are tried one by one; a pattern that fits nearly everywhere would take each with each."""
_Segment = tuple[tuple[int, str], ...]
"""What stands between two wildcards: texts, each at its distance from the beginning, with any characters between."""


def is_like(check: Check, pattern: str | None, text: str | int | float | None, escape: str = "\\") -> bool | None:
    """Returns whether a text is like a pattern, in which `%` stands for any characters and `_` for one. A pattern that
    ends within an escape is like nothing.
    """
    if pattern is None or text is None:
        return None
    parsed_pattern = _parse(str(pattern), escape)
    if parsed_pattern is None:
        return False
    segments, sizes = parsed_pattern
    text = str(text)
    if len(segments) == 1:
        return len(text) == sizes[0] and _stands_at(segments[0], text, 0)
    end = len(text) - sizes[-1]
    if end < sizes[0] or not _stands_at(segments[0], text, 0) or not _stands_at(segments[-1], text, end):
        return False
    place = sizes[0]
    for segment, size in zip(segments[1:-1], sizes[1:-1], strict=True):
        start = _find(check, segment, text, place, end - size)
        if start < 0:
            return False
        place = start + size
    return place <= end


def _find(check: Check, segment: _Segment, text: str, start: int, last: int) -> int:
    """Returns the first place of a segment between two places, -1 if there is none."""
    if not segment:
        return start if start <= last else -1
    # The longest text of the segment is the rarest one.
    offset, rarest = max(segment, key=lambda part: len(part[1]))
    tries = 0
    while start <= last:
        place = text.find(rarest, start + offset, last + offset + len(rarest)) - offset
        if place < start:
            return -1
        if len(segment) == 1 or _stands_at(segment, text, place):
            return place
        start = place + 1
        tries += 1
        if tries == _MOST_TRIES:
            check()
            return _scan(check, segment, text, start, last)
    return -1


def _scan(check: Check, segment: _Segment, text: str, start: int, last: int) -> int:
    """Does the same in one pass: bit n of `fitting` says that the n + 1 characters read last fit the segment so far."""
    size = segment[-1][0] + len(segment[-1][1])
    fixed_places, places_of = 0, dict[str, int]()
    for offset, part in segment:
        for place, character in enumerate(part, offset):
            fixed_places |= 1 << place
            places_of[character] = places_of.get(character, 0) | 1 << place
    # A place between the texts takes any character.
    free = ((1 << size) - 1) ^ fixed_places
    places_of = {character: places | free for character, places in places_of.items()}
    fitting, whole = 0, 1 << (size - 1)
    for place in range(start, min(last + size, len(text))):
        fitting = (fitting << 1 | 1) & places_of.get(text[place], free)
        if fitting & whole:
            return place - size + 1
        if place % _ASK_EVERY == 0:
            check()
    return -1


def _stands_at(segment: _Segment, text: str, place: int) -> bool:
    return all(text.startswith(part, place + offset) for offset, part in segment)


@lru_cache(maxsize=500)
def _parse(pattern: str, escape: str) -> tuple[list[_Segment], list[int]] | None:
    """Returns the segments of a pattern and their lengths. None if it ends within an escape."""
    segments: list[_Segment] = []
    sizes: list[int] = []
    parts: list[tuple[int, str]] = []
    run: list[str] = []
    size = index = 0

    def end_run() -> None:
        if run:
            parts.append((size - len(run), "".join(run)))
            run.clear()

    while index < len(pattern):
        character = pattern[index]
        if character == escape:
            index += 1
            if index == len(pattern):
                return None
            run.append(pattern[index])
            size += 1
        elif character == "%":
            end_run()
            segments.append(tuple(parts))
            sizes.append(size)
            parts, size = [], 0
        elif character == "_":
            end_run()
            size += 1
        else:
            run.append(character)
            size += 1
        index += 1
    end_run()
    return [*segments, tuple(parts)], [*sizes, size]
