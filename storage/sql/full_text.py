"""The words of a text for full-text indexes. They are computed here, so that SQLite and Postgres find the same."""

import re
import unicodedata
from collections.abc import Iterator

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""A word. In scripts without spaces, each character is a word."""
_MOST_WORDS = 16_000
"""The most words of a text that are indexed: Postgres does not count positions further."""
_MOST_CHARACTERS = 200_000
_WORD_LENGTH = 100


def normalise(text: str) -> str:
    """Returns a text in lower case, without accents and look-alike forms of letters (Unicode's NFKD)."""
    if text.isascii():
        return text.lower()
    decomposed_text = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in decomposed_text if not unicodedata.combining(character))


def split_words(text: str) -> list[str]:
    """Returns the words of a text as both databases index them and as searches compare them."""
    return [word[:_WORD_LENGTH] for word in _WORD.findall(normalise(text[:_MOST_CHARACTERS]))[:_MOST_WORDS]]


def find_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields each word of a text: its start and end, in characters, and the form that searches compare."""
    for match in _WORD.finditer(text):
        yield match.start(), match.end(), normalise(match[0])[:_WORD_LENGTH]


def tag_words(owner_id: str, words: list[str]) -> list[str]:
    """Returns the words as the index holds them: marked with their owner, so that a search touches no other owner's
    words.

    owner_id: a UUID, of an organisation or a collection.
    """
    tag = owner_id[:8].translate(_LETTERS)
    return [tag + word for word in words]


# Letters only: a word that began with digits might be read as a number.
_LETTERS = str.maketrans("0123456789-", "ghijklmnopq")
