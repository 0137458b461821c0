"""HTML: the headings, paragraphs, lists, tables and code that a browser would show."""

import re
from collections.abc import Callable
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from baobab.runtime.documents.child.plain_text import decode_text, read_charset
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder, squeeze, squeeze_lines

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset", re.IGNORECASE)
# fmt: off
_HIDDEN = frozenset((
    "script", "style", "template", "noscript", "svg", "math", "nav", "head", "iframe", "object", "embed",
    "canvas", "audio", "video", "select", "datalist", "dialog",
))
_BLOCKS = frozenset((
    "p", "div", "section", "article", "main", "aside", "header", "footer", "ul", "ol", "dl", "dt", "dd", "li",
    "blockquote", "form", "fieldset", "address", "figure", "figcaption", "details", "summary", "hr", "table",
    "caption", "thead", "tbody", "tfoot", "tr", "td", "th", "pre", "body", "html", "h1", "h2", "h3", "h4", "h5",
    "h6", "center", "legend",
))
# fmt: on
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
# A line break of the source is a space; that of <br> is one.
_INLINE: dict[str, Callable[[LexborNode], str]] = {
    "-text": lambda node: (node.text_content or "").replace("\r", " ").replace("\n", " "),
    "br": lambda _: "\n",
    "img": lambda node: f" {node.attributes.get('alt') or ''} ",
}
_MOST_WAITING = 200_000


def read_document(source: bytes, builder: TextBuilder, options: dict[str, Any]) -> None:
    charset = read_charset(options["media_type"])
    if not charset and _CHARSET.search(source[:4096]):
        charset = read_charset(source[:4096].decode("latin-1"))
    read_html(decode_text(source, charset), builder)


def read_html(text: str, builder: TextBuilder) -> None:
    """Adds the visible content of a page. Raises Refused."""
    tree = LexborHTMLParser(text)
    title = tree.css_first("title")
    if title is not None and builder.title is None:
        builder.title = title.text()
    if tree.body is not None:
        _Walk(builder).walk(tree.body)


class _Walk:
    """Walks through a page in the order of its text. It has a stack of its own, because a page may be nested deeply."""

    def __init__(self, builder: TextBuilder) -> None:
        self._builder = builder
        self._pieces: list[str] = []
        self._items = 0

    def walk(self, body: LexborNode) -> None:
        # (node, whether it was entered before)
        stack: list[tuple[LexborNode, bool]] = [(body, False)]
        while stack:
            node, was_entered = stack.pop()
            if was_entered:
                self._leave(node)
                continue
            if self._enter(node):
                stack.append((node, True))
                if len(stack) > _MOST_WAITING:
                    raise Refused("The page is nested too deeply.")
                children = list(node.iter(include_text=True))
                stack.extend((child, False) for child in reversed(children))
        self._flush()

    def _enter(self, node: LexborNode) -> bool:
        """Begins a node, and returns whether its children must be walked too."""
        tag = node.tag or ""
        if tag in _INLINE:
            self._pieces.append(_INLINE[tag](node))
            return False
        if tag in _HIDDEN or tag.startswith(("-", "_")) or "hidden" in node.attributes:
            return False
        if tag in _BLOCKS:
            self._flush()
        self._items += tag == "li"
        return not self._add_whole(tag, node)

    def _add_whole(self, tag: str, node: LexborNode) -> bool:
        """Adds the node with all its content as one block, if it is such a node, and returns whether it is."""
        if tag in _HEADINGS:
            self._builder.add("heading", squeeze(node.text(separator="")), level=_HEADINGS[tag])
        elif tag == "pre":
            self._builder.add("code", node.text())
        elif tag == "table" and not node.css_first("table table"):
            self._builder.add_table(read_table(node))
        else:
            return False
        return True

    def _leave(self, node: LexborNode) -> None:
        if node.tag in _BLOCKS:
            self._flush()
        if node.tag == "li":
            self._items -= 1

    def _flush(self) -> None:
        text = squeeze_lines("".join(self._pieces))
        self._pieces.clear()
        if self._items:
            self._builder.add_item(text)
        else:
            self._builder.add("paragraph", text)


def read_table(table: LexborNode) -> list[list[str]]:
    return [[cell.text(separator=" ") for cell in row.css("td, th")] for row in table.css("tr")]
