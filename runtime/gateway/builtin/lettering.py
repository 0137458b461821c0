"""Letters for the built-in pictures and films: capitals, figures and signs of five by seven dots, drawn here."""

import unicodedata
from collections.abc import Iterator

ACROSS, DOWN = 6, 9
"""Dots that a letter takes, with the gap after it and below it."""

_DRAWN = (
    (
        "ABCDEFGHIJKLM",
        " ###  ####   ###  ####  ##### #####  ###  #   # #####   ### #   # #     #   #",
        "#   # #   # #   # #   # #     #     #   # #   #   #      #  #  #  #     ## ##",
        "#   # #   # #     #   # #     #     #     #   #   #      #  # #   #     # # #",
        "##### ####  #     #   # ####  ####  # ### #####   #      #  ##    #     # # #",
        "#   # #   # #     #   # #     #     #   # #   #   #      #  # #   #     #   #",
        "#   # #   # #   # #   # #     #     #   # #   #   #   #  #  #  #  #     #   #",
        "#   # ####   ###  ####  ##### #      #### #   # #####  ##   #   # ##### #   #",
    ),
    (
        "NOPQRSTUVWXYZ",
        "#   #  ###  ####   ###  ####   #### ##### #   # #   # #   # #   # #   # #####",
        "##  # #   # #   # #   # #   # #       #   #   # #   # #   # #   # #   #     #",
        "# # # #   # #   # #   # #   # #       #   #   # #   # #   #  # #   # #     # ",
        "# # # #   # ####  #   # ####   ###    #   #   # #   # # # #   #     #     #  ",
        "#  ## #   # #     # # # # #       #   #   #   # #   # # # #  # #    #    #   ",
        "#   # #   # #     #  #  #  #      #   #   #   #  # #  ## ## #   #   #   #    ",
        "#   #  ###  #      ## # #   # ####    #    ###    #   #   # #   #   #   #####",
    ),
    (
        "0123456789",
        " ###    #    ###  #####    #  #####  ###  #####  ###   ### ",
        "#   #  ##   #   #     #   ##  #     #         # #   # #   #",
        "#  ##   #       #    #   # #  ####  #        #  #   # #   #",
        "# # #   #     ##    ##  #  #      # ####    #    ###   ####",
        "##  #   #    #        # #####     # #   #   #   #   #     #",
        "#   #   #   #     #   #    #  #   # #   #   #   #   #     #",
        " ###   ###  #####  ###     #   ###   ###    #    ###   ### ",
    ),
    (
        ".,:;!?'\"-_/()+=#&\ufffd",
        "                          #    ###    #    # #                  #    #   #                 # #   ##   #####",
        "             ##    ##     #   #   #   #    # #                  #   #     #     #          # #  #  #  #   #",
        "             ##    ##     #       #  #                         #   #       #    #   ##### ##### # #   #   #",
        "                          #      #               ###          #    #       #  #####        # #   #    #   #",
        "       ##    ##    ##     #     #                            #     #       #    #   ##### ##### # # # #   #",
        " ##    ##    ##     #                                       #       #     #     #          # #  #  #  #   #",
        " ##    #           #      #     #                     ##### #        #   #                 # #   ## # #####",
    ),
)
_UNKNOWN = "\ufffd"


def _cut() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each letter with its seven rows of dots."""
    for letters, *rows in _DRAWN:
        for index, letter in enumerate(letters):
            start = index * ACROSS
            yield letter, tuple(row[start : start + ACROSS].ljust(ACROSS) for row in rows)


_LETTERS = {**dict(_cut()), " ": (" " * ACROSS,) * 7}


def lettered(text: str) -> list[str]:
    """A line of text as seven rows of "#" and " ". Accents are left out; what has no letter here is a box."""
    letters = [_LETTERS.get(letter, _LETTERS[_UNKNOWN]) for letter in plain(text)]
    return ["".join(rows) for rows in zip(*letters, strict=True)]


def plain(text: str) -> str:
    """The text in the letters that there are, as many as will be drawn."""
    parts = unicodedata.normalize("NFKD", text).upper()
    return "".join(" " if part.isspace() else part for part in parts if not unicodedata.combining(part))


def lines(text: str, width: int, most: int) -> list[str]:
    """At most `most` lines of at most `width` letters, cut between words where that is possible."""
    found: list[str] = []
    rest = " ".join(plain(text).split())
    while rest and len(found) < most:
        end = len(rest) if len(rest) <= width else rest.rfind(" ", 1, width + 1)
        end = end if end > 0 else width
        found.append(rest[:end])
        rest = rest[end:].lstrip()
    return found
