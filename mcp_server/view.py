"""Views: which tools a connection shows, chosen by the query string of its address."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl

from baobab.mcp_server.errors import ViewInvalid
from baobab.mcp_server.shortening import MOST_CHARACTERS
from baobab.tools.core.auth.directory import APP_ID_PATTERN

Results = Literal["both", "structured", "text"]

_KNOWN = ("toolsets", "app_id", "read_only", "results", "max_characters")
_FEWEST_CHARACTERS, _MOST_CHARACTERS = 10_000, 16_000_000


@dataclass(frozen=True, slots=True)
class View:
    """`/mcp` shows the start set with a search; `?toolsets=kv,apps` or `all` chooses other tools; the rest narrow the
    view.

    app_id: every call is made in this app, and tools do not have the argument. results: `both` sends JSON text and
    structured content, `text` and `structured` only one of them. max_characters: about how long one result may be.
    """

    toolsets: frozenset[str] | None = None
    every: bool = False
    app_id: str | None = None
    read_only: bool = False
    results: Results = "both"
    max_characters: int = MOST_CHARACTERS

    @property
    def shows_start_set(self) -> bool:
        """Whether the list shows the start set."""
        return self.toolsets is None and not self.every


class Views:
    def __init__(self, toolsets: Iterable[str]) -> None:
        self._toolsets = frozenset(toolsets)
        self._parse_cached = lru_cache(maxsize=1000)(self._parse)

    def get_view(self, query: bytes) -> View:
        """Returns the view of a query string. Raises ViewInvalid."""
        return self._parse_cached(query)

    def _parse(self, query: bytes) -> View:
        options: dict[str, Any] = {}
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=20):
            if name not in _KNOWN:
                raise self._build_invalid(f"`{name[:60]}` is not a parameter of this address.")
            if name in options:
                raise self._build_invalid(f"`{name}` is given twice.")
            options[name] = value
        toolsets, every = self._parse_toolsets(options.get("toolsets"))
        app_id = options.get("app_id")
        if app_id is not None and not APP_ID_PATTERN.fullmatch(app_id):
            raise self._build_invalid("`app_id` is not the id of an app.")
        return View(
            toolsets,
            every,
            app_id,
            read_only=self._parse_choice(options, "read_only", ("true", "false")) == "true",
            results=self._parse_choice(options, "results", get_args(Results)) or "both",
            max_characters=self._parse_length(options.get("max_characters")),
        )

    def _parse_length(self, text: str | None) -> int:
        if text is None:
            return MOST_CHARACTERS
        length = int(text) if text.isdecimal() and len(text) < 10 else 0
        if not _FEWEST_CHARACTERS <= length <= _MOST_CHARACTERS:
            raise self._build_invalid(f"`max_characters` must be {_FEWEST_CHARACTERS} to {_MOST_CHARACTERS}.")
        return length

    def _parse_toolsets(self, text: str | None) -> tuple[frozenset[str] | None, bool]:
        if text is None:
            return None, False
        names = frozenset(name.strip() for name in text.split(",") if name.strip())
        if names == {"all"}:
            return None, True
        unknown = sorted(names - self._toolsets)
        if unknown or not names:
            raise self._build_invalid(f"There is no toolset `{(unknown or [''])[0][:60]}`.")
        return names, False

    def _parse_choice(self, options: dict[str, Any], name: str, values: tuple[str, ...]) -> Any:
        value = options.get(name)
        if value is not None and value not in values:
            raise self._build_invalid(f"`{name}` must be {' or '.join(values)}.")
        return value

    def _build_invalid(self, message: str) -> ViewInvalid:
        return ViewInvalid(message, details={"toolsets": sorted(self._toolsets)})
