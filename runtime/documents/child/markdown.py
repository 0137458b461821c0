"""Markdown: the text as it stands, with the blocks that CommonMark finds in it."""

from typing import Any

from markdown_it import MarkdownIt

from baobab.runtime.documents.child.plain_text import decode_text, read_charset
from baobab.runtime.documents.child.text_builder import TextBuilder, clean_text
from baobab.runtime.documents.document import BlockKind

# Only the structure is needed, and inline Markdown is where time can explode.
_parser = MarkdownIt("commonmark", {"maxNesting": 20}).enable("table").disable(["inline", "text_join"])
_KINDS: dict[str, BlockKind] = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "blockquote_open": "paragraph",
    "html_block": "paragraph",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
    "fence": "code",
    "code_block": "code",
}


def read_document(source: bytes, builder: TextBuilder, options: dict[str, Any]) -> None:
    text = clean_text(decode_text(source, read_charset(options["media_type"])))
    builder.add_source(text)
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    for token in _parser.parse(text):
        kind = _KINDS.get(token.type)
        if kind is None or token.level or token.map is None:
            continue
        start, end = starts[token.map[0]], min(starts[token.map[1]], len(text))
        part = text[start:end].rstrip()
        level = int(token.tag[1]) if kind == "heading" else 0
        builder.mark(kind, start, start + len(part), level=level)
        if level == 1 and builder.title is None:
            builder.title = part.lstrip("# ").split("\n")[0].rstrip("# ")
