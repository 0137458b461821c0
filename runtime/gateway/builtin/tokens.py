"""The built-in model's tokens: up to six characters of a word, with up to four of white space before it.

The rule can be checked by hand, and a text is exactly the concatenation of its tokens. No vendor's model uses it.
"""

import re
from collections.abc import Iterator

LONGEST = 10
"""The most characters of a token."""
PER_MESSAGE = 4
PER_ATTACHMENT = 85  # an image, a video, a sound or a file, whatever its size
PER_TOOL_CALL = 4

_TOKEN = re.compile(r"\s{0,4}\S{1,6}|\s{1,4}")


def split_tokens(text: str) -> Iterator[str]:
    """Yields the tokens of a text in order; joined, they are the text."""
    return (match.group() for match in _TOKEN.finditer(text))


def count_tokens(text: str) -> int:
    return sum(1 for _ in _TOKEN.finditer(text))


def first_tokens(text: str, most: int) -> str:
    """Returns the part of a text in its first `most` tokens."""
    end = 0
    for number, match in enumerate(_TOKEN.finditer(text)):
        if number == most:
            break
        end = match.end()
    return text[:end]
