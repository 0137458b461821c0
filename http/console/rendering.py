"""Renders the console's pages. Templates escape every value, and text from others is also made visible where it is
not.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from baobab.tools.core.escaping import escape_json, escape_text

_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
"""A JSON string in a title, which a proposer chose."""
_FOLDER = Path(__file__).parent


def build_environment(folder: Path = _FOLDER / "templates") -> Environment:
    """Builds the template environment. folder: where template files are."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "inert": escape_lines,
        "quotes_apart": _QUOTED.split,
        "plain_json": partial(escape_json, indent=2),
        "editable_json": partial(json.dumps, indent=2, ensure_ascii=True),
        "moment": render_moment,
        "clock": lambda moment: f"{moment.astimezone(UTC):%H:%M:%S}",
        "duration": say_duration,
        "usd": say_dollars,
        "milliseconds": say_milliseconds,
        "state_words": lambda state: str(state).replace("_", " "),
        "iso": lambda moment: moment.astimezone(UTC).isoformat(timespec="seconds"),
    }
    environment.tests["several_lines"] = lambda text: "\n" in text or len(text) > 80
    return environment


def escape_lines(text: object) -> str:
    """Escapes other people's text: makes invisible characters visible, and keeps only line ends as they are."""
    return "\n".join(escape_text(line) for line in str(text).split("\n"))


def render_moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def render_page(environment: Environment, template: str, values: Mapping[str, Any]) -> str:
    """Renders a page. template: the name of a file, or the template itself."""
    loaded_template = (
        environment.get_template(template) if template.endswith(".html") else environment.from_string(template)
    )
    return loaded_template.render(values)


def say_duration(seconds: float) -> str:
    """Returns a duration in its largest unit, rounded down, such as `3 minutes`."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return "less than a minute"


def say_ago(seconds: float) -> str:
    return "just now" if seconds < 60 else f"{say_duration(seconds)} ago"


def say_dollars(amount: float | str | None) -> str:
    """Returns an amount with at least two decimal places, and more for small amounts."""
    number = float(amount or 0)
    return f"${number:,.2f}" if number == 0 or number >= 1 else f"${number:.{4 if number >= 0.01 else 6}f}"


def say_milliseconds(milliseconds: float) -> str:
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else f"{milliseconds / 60_000:.1f} min"
