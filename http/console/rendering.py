"""Renders the console's pages. Templates escape every value, and text from others is also made visible where it is
not.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from baobab.http.console.app_page import name_app
from baobab.http.console.returned_form import say_remedy
from baobab.tools.core.guard.escaping import escape_json, escape_text

_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
"""A JSON string in a title, which a proposer chose."""
_FOLDER = Path(__file__).parent
_ICONS = {path.stem: path.read_text().strip() for path in (_FOLDER / "icons").glob("*.svg")}
_COLOURS_OF_AVATARS = 5


def read_clock() -> datetime:
    return datetime.now(UTC)


def build_environment(folder: Path = _FOLDER / "templates", now: Callable[[], datetime] = read_clock) -> Environment:
    """Builds the template environment. folder: where template files are. now: what relative times are relative to."""
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
        "to_the_second": lambda moment: f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "near": lambda moment: say_near(moment, now()),
        "remedy_for_person": say_remedy,
        "upfirst": lambda html: Markup(str(html)[:1].upper() + str(html)[1:]),  # noqa: S704 (rendered already)
        "app_title": name_app,
        "initials": find_initials,
        "colour": lambda name: sum(str(name).encode()) % _COLOURS_OF_AVATARS,
        "clock": lambda moment: f"{moment.astimezone(UTC):%H:%M:%S}",
        "duration": say_duration,
        "usd": say_dollars,
        "milliseconds": say_milliseconds,
        "state_words": lambda state: str(state).replace("_", " "),
        "iso": lambda moment: moment.astimezone(UTC).isoformat(timespec="seconds"),
    }
    environment.globals["icon"] = draw_icon
    environment.tests["several_lines"] = lambda text: "\n" in text or len(text) > 80
    return environment


def escape_lines(text: object) -> str:
    """Escapes other people's text: makes invisible characters visible, and keeps only line ends as they are."""
    return "\n".join(escape_text(line) for line in str(text).split("\n"))


def render_moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def draw_icon(name: str, css_class: str = "") -> Markup:
    """Returns an icon as SVG, which those who hear the page do not hear: beside it stands a name."""
    attributes = f'<svg class="{f"icon {css_class}".strip()}" width="16" height="16" aria-hidden="true"'
    return Markup(_ICONS[name].replace("<svg", attributes, 1))  # noqa: S704 (our own files)


def find_initials(name: object) -> str:
    """Returns at most two letters of a name for an avatar; nothing of it that is invisible."""
    words = re.findall(r"[^\W_]+", str(name).partition("@")[0])
    return "".join(word[0] for word in words[:2]).upper() or "?"


def say_near(moment: datetime, now: datetime) -> str:
    """Returns a time as people say it: relative within an hour, else the clock, the day or the date, in UTC.

    The script of the pages says the same in the zone of the browser (`sayNear` in `console.js`).
    """
    moment, now = moment.astimezone(UTC), now.astimezone(UTC)
    minutes = (moment - now) / timedelta(minutes=1)
    if abs(minutes) < 1:
        return "just now" if minutes <= 0 else "in less than a minute"
    if abs(minutes) < 60:
        return f"{-minutes:.0f} min ago" if minutes < 0 else f"in {minutes:.0f} min"
    days = (moment.date() - now.date()).days
    clock = f"{moment:%H:%M} UTC"
    if abs(days) <= 1:
        return f"{('yesterday ', '', 'tomorrow ')[days + 1]}{clock}"
    if abs(days) < 7:
        return f"{moment:%a} {clock}"
    return f"{moment.day} {moment:%b}" if moment.year == now.year else f"{moment.day} {moment:%b %Y}"


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


_APPROVERS = {
    "starter": "whoever starts the run",
    "user": "any user of the app",
    "member": "any member of the organisation",
    "account": "whom the key belongs to",
}


def say_approvers(approvers: Any) -> str:
    """Says who decides, from the words of an agent, a node or an approval."""
    if approvers == "admin":
        return "admins of the organisation"
    return f"{_say_who(approvers)}, and admins of the organisation"


def _say_who(approvers: Any) -> str:
    if isinstance(approvers, dict) and "persons" in approvers:
        return f"{approvers['persons']} people: {_say_who(approvers['of'])}"
    if isinstance(approvers, dict):
        return f"users with the role {approvers.get('role')}"
    return _APPROVERS.get(approvers, str(approvers))
