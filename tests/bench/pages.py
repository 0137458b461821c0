"""Writes what was measured into docs/speed.md: each section's report between its two marks (docs/decisions/0039)."""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "speed.md"


def list_places(text: str) -> list[str]:
    """Returns the sections that have a place in the page, in its order."""
    return re.findall(r"^<!-- figures: ([a-z-]+) -->$", text, re.MULTILINE)


def replace_figures(text: str, lines: Mapping[str, Sequence[str]], about: str) -> str:
    """Returns the page with these reports in their places. about: when and where they were measured. KeyError for a
    section that has no place.
    """
    for name, report in lines.items():
        begin, end = f"<!-- figures: {name} -->\n", "<!-- end of figures -->"
        head, mark, rest = text.partition(begin)
        if not mark:
            raise KeyError(f"docs/speed.md has no place for the figures of {name}")
        figures = "\n".join(line.rstrip() for line in report).strip("\n")
        text = f"{head}{begin}```text\n{about}\n\n{figures}\n```\n{end}{rest.partition(end)[2]}"
    return text


def write_figures(lines: Mapping[str, Sequence[str]]) -> None:
    about = (
        f"{datetime.now(UTC):%d %B %Y}, {os.cpu_count()} processors, Python {platform.python_version()}, "
        f"load average {os.getloadavg()[0]:.1f} at the end"
    )
    PAGE.write_text(replace_figures(PAGE.read_text(), lines, about))
