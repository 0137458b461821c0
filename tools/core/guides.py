"""The guides: the pages of `docs/`, which are part of the package, as text."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from baobab.tools.core.errors import NotFound

FOLDER = Path(__file__).parents[2] / "docs"

MAX_PART = 6000
"""Characters of one part of a page: what a model is given at a time."""

_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_HEADING = re.compile(r"^(#{1,4}) (.+)$")
_INDEXED = re.compile(r"^- \[[^\]]*\]\(([a-z-]+)\.md\): (.+(?:\n  .+)*)", re.MULTILINE)
_FENCE = "```"


class GuideNotFound(NotFound):
    code = "GUIDE_NOT_FOUND"
    summary = "There is no such page or section."
    remediation = "Take one of `details.known`; without a name, docs_read lists the pages."


@dataclass(frozen=True)
class Part:
    """A section of a page, or a piece of one that is long. `slug` is what its links end with."""

    slug: str
    title: str
    level: int
    text: str


@dataclass(frozen=True)
class Guide:
    name: str
    description: str
    text: str

    @property
    def title(self) -> str:
        return self.parts[0].title

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Returns the whole page, divided at its headings."""
        return tuple(_parts(self.text))

    def section(self, slug: str | None) -> tuple[str, str | None]:
        """Returns the text from a heading on, up to MAX_PART, and the slug of what follows. It ends with a section of
        the page; without a slug it begins with the page. The words of a heading do for its slug.

        Raises GuideNotFound for a section that the page does not have.
        """
        at = 0
        if slug is not None:
            slugs = [part.slug for part in self.parts]
            slug = slug if slug in slugs else Slugs().of(slug)
            if slug not in slugs:
                raise build_not_found("section", slug, slugs)
            at = slugs.index(slug)
        level, text = self.parts[at].level, self.parts[at].text
        for part in self.parts[at + 1 :]:
            if (slug is not None and part.level <= min(level, 2)) or len(text) + len(part.text) > MAX_PART:
                return text, part.slug
            text += part.text
        return text, None


def build_not_found(kind: str, name: str, names: list[str]) -> GuideNotFound:
    """Builds the error for a page or section that does not exist, with the names of those that do."""
    near_names = difflib.get_close_matches(name, names, 1)
    suggestion = f" Did you mean `{near_names[0]}`?" if near_names else ""
    return GuideNotFound(f"There is no {kind} `{name[:100]}`.{suggestion}", details={"known": names})


def find_guide(name: str) -> Guide:
    """Returns a page by its name, with or without `.md`. Raises GuideNotFound."""
    guide = guides().get(name.removesuffix(".md"))
    if guide is None:
        raise build_not_found("page", name, list(guides()))
    return guide


@cache
def guides() -> Mapping[str, Guide]:
    """Returns all pages by name, the index first."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    descriptions = {name: " ".join(text.split()) for name, text in _INDEXED.findall(texts["index"])}
    descriptions["index"] = "Every page, and what is in it"
    names = sorted(texts, key=lambda name: (name != "index", name))
    return {name: Guide(name, descriptions.get(name, ""), _strip_unserved(texts[name], texts)) for name in names}


class Slugs:
    """Makes the slugs of the headings of one page from their words."""

    def __init__(self) -> None:
        self._last_numbers: dict[str, int] = {}

    def of(self, heading: str) -> str:
        """Returns the slug of the next heading; a repeated one gets a number."""
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = self._last_numbers[slug] = self._last_numbers.get(slug, -1) + 1
        return f"{slug}-{number}" if number else slug


def _strip_unserved(text: str, pages: Mapping[str, str]) -> str:
    """Returns a page without remarks for its editors and without links to files that are not served."""

    def keep(link: re.Match[str]) -> str:
        words, target = link[1], link[2]
        beside = "/" not in target and target.removesuffix(".md") in pages
        return link[0] if not target or "://" in target or beside else words

    return _LINK.sub(keep, _COMMENT.sub("", text))


def _parts(text: str) -> list[Part]:
    parts: list[Part] = []
    lines: list[str] = []
    slug, title, level = "", "", 1
    slugs = Slugs()
    is_fenced = False

    def close() -> None:
        for number, piece in enumerate(_pieces(lines)):
            parts.append(Part(slug if not number else f"{slug}~{number + 1}", title, level + bool(number), piece))

    for line in text.splitlines(keepends=True):
        heading = None if is_fenced else _HEADING.match(line)
        is_fenced ^= line.startswith(_FENCE)
        if heading is not None:
            if lines:
                close()
            lines, title, level = [], heading[2].strip(), len(heading[1])
            slug = slugs.of(title)
        lines.append(line)
    close()
    return parts


def _pieces(lines: list[str]) -> list[str]:
    """Splits lines into pieces of at most MAX_PART characters; a longer line is a piece of its own."""
    pieces = [""]
    for line in lines:
        if pieces[-1] and len(pieces[-1]) + len(line) > MAX_PART:
            pieces.append("")
        pieces[-1] += line
    return pieces
