"""What the built-in model counts: a token is up to six characters of a word, with up to four of white space before it.

The rule is simple enough to be checked by hand, and every text is exactly the sum of its tokens. It is not the rule of
any vendor's model.
"""

import re
from collections.abc import Iterator

LONGEST = 10
"""Characters of a token, at most."""
PER_MESSAGE = 4
PER_ATTACHMENT = 85  # an image, a video, a sound or a file, whatever its size
PER_TOOL_CALL = 4

_TOKEN = re.compile(r"\s{0,4}\S{1,6}|\s{1,4}")


def split_tokens(text: str) -> Iterator[str]:
    """The tokens of a text in order; joined they are the text."""
    return (found.group() for found in _TOKEN.finditer(text))


def count_tokens(text: str) -> int:
    return sum(1 for _ in _TOKEN.finditer(text))


def first_tokens(text: str, most: int) -> str:
    """As much of a text as that many tokens hold."""
    end = 0
    for number, found in enumerate(_TOKEN.finditer(text)):
        if number == most:
            break
        end = found.end()
    return text[:end]
