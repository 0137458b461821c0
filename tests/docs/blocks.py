"""Reads the commands that a page tells a reader to type."""

import re


def find_blocks(page: str, language: str, *, below: str = "") -> list[str]:
    """The fenced blocks of a language, of the whole page or of one section of the second level."""
    if below:
        (page,) = re.findall(rf"^## {re.escape(below)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
