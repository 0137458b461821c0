"""pptx: each slide is a page with its title, texts and tables, and the speaker's notes."""

from baobab.runtime.documents.child.archive import Archive
from baobab.runtime.documents.child.text_builder import TextBuilder, squeeze, squeeze_lines
from baobab.runtime.documents.child.xml_events import parse_xml, read_elements

_TITLES = ("title", "ctrTitle")
_HIDDEN = ("sldNum", "dt", "ftr", "hdr", "sldImg")


def read_slides(archive: Archive, main: str, builder: TextBuilder) -> None:
    relations = archive.read_relations(main)
    # An `id` without its namespace is the number of a slide or its relation; the relation comes last in every writer,
    # and only it is found among the relations.
    names = [
        relations[attributes["id"]][1]
        for tag, attributes in read_elements(archive.read(main))
        if tag == "sldId" and attributes.get("id") in relations
    ]
    builder.require_pages(len(names))
    for page, name in enumerate(names, 1):
        _Reader(builder, page).read(archive.read(name))
        for kind, target in archive.read_relations(name).values():
            if kind == "notesSlide":
                _Reader(builder, page).read(archive.read(target))


class _Reader:
    """Receives the elements of one slide in their order."""

    def __init__(self, builder: TextBuilder, page: int) -> None:
        self._builder = builder
        self._page = page
        self._placeholder = ""
        self._title: list[str] = []
        self._pieces: list[str] = []
        self._rows: list[list[str]] | None = None
        self._cell: list[str] = []
        self._is_text = False
        self._skip_depth = 0

    def read(self, source: bytes) -> None:
        parse_xml(source, self._start, self._end, self._add_text)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "Fallback" or self._skip_depth:
            self._skip_depth += 1
        elif tag == "sp":
            self._placeholder, self._title = "", []
        elif tag == "ph":
            self._placeholder = attributes.get("type", "")
        elif tag == "tbl":
            self._rows = []
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag == "tc":
            self._cell = []
        elif tag == "p":
            self._pieces = []
        elif tag == "t":
            self._is_text = True
        elif tag in ("br", "tab"):
            self._pieces.append("\n" if tag == "br" else "\t")

    def _end(self, tag: str) -> None:
        if self._skip_depth:
            self._skip_depth -= 1
        elif tag == "t":
            self._is_text = False
        elif tag == "p":
            self._add_paragraph(squeeze_lines("".join(self._pieces)))
        elif tag == "tc" and self._rows:
            self._rows[-1].append(" ".join(self._cell))
        elif tag == "tbl" and self._rows is not None:
            self._builder.add_table(self._rows, page=self._page)
            self._rows = None
        elif tag == "sp" and self._title:
            self._builder.add("heading", squeeze(" ".join(self._title)), level=1, page=self._page)
            self._title = []

    def _add_text(self, data: str) -> None:
        if self._is_text and not self._skip_depth:
            self._pieces.append(data)

    def _add_paragraph(self, text: str) -> None:
        if self._rows is not None:
            self._cell.append(text)
        elif self._placeholder in _TITLES:
            self._title.append(text)
        elif self._placeholder not in _HIDDEN:
            self._builder.add("paragraph", text, page=self._page)
