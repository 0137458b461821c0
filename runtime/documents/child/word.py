"""docx: paragraphs, headings, lists and tables, followed by the notes."""

from dataclasses import dataclass, field

from baobab.runtime.documents.child.archive import Archive
from baobab.runtime.documents.child.text_builder import TextBuilder, join_cells, squeeze_lines
from baobab.runtime.documents.child.xml_events import parse_xml, read_elements

_NOTES = ("footnotes", "endnotes")
_LONGEST_CHAIN = 20


@dataclass
class _Paragraph:
    pieces: list[str] = field(default_factory=list)
    level: int = 0
    is_item: bool = False


@dataclass
class _Table:
    rows: list[list[str]] = field(default_factory=list)
    cell: list[str] = field(default_factory=list)


def read_word(archive: Archive, main: str, builder: TextBuilder) -> None:
    relations = archive.read_relations(main).values()
    styles = next((target for kind, target in relations if kind == "styles"), "")
    levels = read_heading_styles(archive.read(styles))
    _Reader(builder, levels).read(archive.read(main))
    for kind, target in relations:
        if kind in _NOTES:
            _Reader(builder, levels).read(archive.read(target))


def read_heading_styles(source: bytes) -> dict[str, int]:
    """Returns the level of each heading style, which the style itself or the style that it is based on gives."""
    levels: dict[str, int] = {}
    parents: dict[str, str] = {}
    style = ""
    for tag, attributes in read_elements(source):
        value = attributes.get("val", "")
        if tag == "style":
            style = attributes.get("styleId", "")
        elif tag == "name":
            word, _, number = value.lower().partition(" ")
            if word == "title":
                levels[style] = 1
            elif word == "heading" and number.isdigit():
                levels[style] = _limit_level(int(number))
        elif tag == "basedOn":
            parents[style] = value
        elif tag == "outlineLvl" and value.isdigit() and int(value) < 9:
            levels.setdefault(style, _limit_level(int(value) + 1))
    for style in parents:
        ancestor = style
        for _ in range(_LONGEST_CHAIN):
            if ancestor in levels or ancestor not in parents:
                break
            ancestor = parents[ancestor]
        if ancestor in levels:
            levels.setdefault(style, levels[ancestor])
    return levels


class _Reader:
    """Receives the elements of a document in their order."""

    def __init__(self, builder: TextBuilder, levels: dict[str, int]) -> None:
        self._builder = builder
        self._levels = levels
        # A text box is a paragraph within a paragraph, and a cell may hold a table.
        self._paragraphs: list[_Paragraph] = []
        self._tables: list[_Table] = []
        self._skip_depth = 0
        self._properties = 0
        self._is_text = False

    def read(self, source: bytes) -> None:
        parse_xml(source, self._start, self._end, self._add_text)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        # The same drawing once more, for old programs.
        if tag == "Fallback" or self._skip_depth:
            self._skip_depth += 1
            return
        paragraph = self._paragraphs[-1] if self._paragraphs else None
        if tag == "p":
            self._paragraphs.append(_Paragraph())
        elif tag == "pPr":
            self._properties += 1
        elif tag == "t":
            self._is_text = True
        elif tag == "tbl":
            self._tables.append(_Table())
        elif tag == "tr" and self._tables:
            self._tables[-1].rows.append([])
        elif tag == "tc" and self._tables:
            self._tables[-1].cell = []
        elif paragraph is None:
            return
        elif self._properties:
            self._read_property(paragraph, tag, attributes.get("val", ""))
        elif tag in ("tab", "br", "cr"):
            paragraph.pieces.append("\t" if tag == "tab" else "\n")
        elif tag == "noBreakHyphen":
            paragraph.pieces.append("-")

    def _read_property(self, paragraph: _Paragraph, tag: str, value: str) -> None:
        if tag == "pStyle":
            paragraph.level = self._levels.get(value, 0)
        elif tag == "outlineLvl" and value.isdigit():
            paragraph.level = _limit_level(int(value) + 1) if int(value) < 9 else 0
        elif tag == "numId":
            paragraph.is_item = value != "0"

    def _end(self, tag: str) -> None:
        if self._skip_depth:
            self._skip_depth -= 1
        elif tag == "t":
            self._is_text = False
        elif tag == "pPr":
            self._properties -= 1
        elif tag == "p" and self._paragraphs:
            self._add_paragraph(self._paragraphs.pop())
        elif tag == "tc" and self._tables and self._tables[-1].rows:
            self._tables[-1].rows[-1].append(" ".join(self._tables[-1].cell))
        elif tag == "tbl" and self._tables:
            table = self._tables.pop()
            if self._tables:
                self._tables[-1].cell += map(join_cells, table.rows)
            else:
                self._builder.add_table(table.rows)

    def _add_text(self, data: str) -> None:
        if self._is_text and self._paragraphs and not self._skip_depth:
            self._paragraphs[-1].pieces.append(data)

    def _add_paragraph(self, paragraph: _Paragraph) -> None:
        text = squeeze_lines("".join(paragraph.pieces))
        if self._tables:
            self._tables[-1].cell.append(text)
        elif paragraph.level:
            self._builder.add("heading", text.replace("\n", " "), level=paragraph.level)
        elif paragraph.is_item:
            self._builder.add_item(text)
        else:
            self._builder.add("paragraph", text)


def _limit_level(level: int) -> int:
    return max(1, min(level, 6))
