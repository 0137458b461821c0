"""The text that is read from documents of each kind."""

from pathlib import Path

import pytest

from baobab.runtime.documents.document import ParsedDocument
from baobab.runtime.documents.parsing import parse_document
from tests.runtime.documents import samples

IS_ITEM = '<w:numPr><w:numId w:val="1"/></w:numPr>'


async def parse(folder: Path, source: bytes, name: str, media_type: str | None = None) -> ParsedDocument:
    path = folder / "document"
    path.write_bytes(source)
    return await parse_document(path, name=name, media_type=media_type)


def show(document: ParsedDocument) -> list[tuple[str, int | None, int | None, str]]:
    return [(each.kind, each.level, each.page, document.text[each.start : each.end]) for each in document.blocks]


async def test_a_plain_text_is_its_paragraphs(tmp_path: Path) -> None:
    document = await parse(tmp_path, "Baobabs\r\nstore water.\r\n\r\n\r\nÉté 🌳".encode(), "a.txt")
    assert document.text == "Baobabs\nstore water.\n\n\nÉté 🌳"
    assert show(document) == [
        ("paragraph", None, None, "Baobabs\nstore water."),
        ("paragraph", None, None, "Été 🌳"),
    ]
    assert document.media_type == "text/plain"


@pytest.mark.parametrize(
    ("source", "media_type"),
    [
        ("\ufeffÉté", None),
        ("Été", None),
        ("Été", "text/plain; charset=utf-16"),
    ],
)
@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
async def test_a_text_is_decoded_by_its_mark_or_as_utf_8(
    tmp_path: Path, source: str, media_type: str | None, codec: str
) -> None:
    document = await parse(tmp_path, source.encode(codec), "a.txt", media_type)
    assert document.text == "Été"


async def test_a_text_is_decoded_as_its_sender_says_and_otherwise_as_cp1252(tmp_path: Path) -> None:
    greek = await parse(tmp_path, "Νερό".encode("iso8859-7"), "a.txt", "text/plain; charset=ISO-8859-7")
    assert greek.text == "Νερό"
    assert (await parse(tmp_path, "Été €".encode("cp1252"), "a.txt")).text == "Été €"


async def test_markdown_keeps_its_text_and_has_blocks(tmp_path: Path) -> None:
    source = "# Trees\n\nA *baobab*\nis wide.\n\n## Kinds\n\n- one\n- two\n\n"
    source += "| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx\n\ny\n```\n"
    document = await parse(tmp_path, source.encode(), "trees.md")
    assert document.text == source
    assert show(document) == [
        ("heading", 1, None, "# Trees"),
        ("paragraph", None, None, "A *baobab*\nis wide."),
        ("heading", 2, None, "## Kinds"),
        ("list", None, None, "- one\n- two"),
        ("table", None, None, "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("code", None, None, "```py\nx\n\ny\n```"),
    ]
    assert document.title == "Trees"


async def test_a_text_may_begin_like_a_picture(tmp_path: Path) -> None:
    assert (await parse(tmp_path, b"BM is a mark of cars.", "a.txt")).text == "BM is a mark of cars."


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
async def test_a_csv_is_one_table(tmp_path: Path, mark: str) -> None:
    source = f'name{mark}note\nAmina{mark}"tall{mark}\nwide"\n\nBen{mark}\n'
    document = await parse(tmp_path, source.encode(), "list.csv")
    note = f"tall{mark} wide" if mark != "\t" else "tall wide"
    assert show(document) == [("table", None, None, f"name | note\nAmina | {note}\nBen")]


async def test_html_is_what_a_browser_would_show(tmp_path: Path) -> None:
    source = b"""<!doctype html><html><head><title>Trees &amp; water</title><style>p{}</style></head><body>
        <nav>Menu</nav>
        <h1>The <b>bao</b>bab</h1><p>It is <i>w</i>ide<br>and old.<p hidden>no<ul><li>one<li>two<p>more</ul>
        <table><tr><th>x<th>y<tr><td>1<td>2</table><pre>a\n  b</pre>End
        <script>no</script><template>no</template></body>"""
    document = await parse(tmp_path, source, "page")
    assert document.media_type == "text/html"
    assert document.title == "Trees & water"
    assert show(document) == [
        ("heading", 1, None, "The baobab"),
        ("paragraph", None, None, "It is wide\nand old."),
        ("list", None, None, "- one\n- two\n- more"),
        ("table", None, None, "x | y\n1 | 2"),
        ("code", None, None, "a\n  b"),
        ("paragraph", None, None, "End"),
    ]


async def test_a_letter_has_its_headers_its_text_and_the_names_of_its_attachments(tmp_path: Path) -> None:
    source = b"""From: Amina <amina@example.org>
To: Ben <ben@example.org>
Subject: =?utf-8?q?=C3=89t=C3=A9?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: multipart/alternative; boundary=y

--y
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

=C9t=E9 is summer.

It is dry.
--y
Content-Type: text/html

<p>no</p>
--y--
--x
Content-Type: application/pdf
Content-Disposition: attachment; filename="plan.pdf"
Content-Transfer-Encoding: base64

QUJD
--x--
"""
    document = await parse(tmp_path, source, "letter.eml")
    assert document.title == "Été"
    assert show(document) == [
        ("heading", 1, None, "Été"),
        ("paragraph", None, None, "From: Amina <amina@example.org>\nTo: Ben <ben@example.org>"),
        ("paragraph", None, None, "Été is summer."),
        ("paragraph", None, None, "It is dry."),
        ("list", None, None, "- Attachment, which is not read: plan.pdf (application/pdf)"),
    ]


async def test_a_docx_has_headings_lists_tables_and_notes(tmp_path: Path) -> None:
    inner_table = f"<w:tbl><w:tr><w:tc>{samples.build_paragraph('inner')}</w:tc></w:tr></w:tbl>"
    body = (
        samples.build_paragraph("Trees", '<w:outlineLvl w:val="0"/>')
        + samples.build_paragraph("Kinds", '<w:pStyle w:val="Mine"/>')
        + samples.build_paragraph("A baobab</w:t><w:tab/><w:t>is</w:t><w:br/><w:t>wide.", '<w:pStyle w:val="Loop"/>')
        + samples.build_paragraph("one", IS_ITEM)
        + samples.build_paragraph("two", IS_ITEM)
        + f"<w:tbl><w:tr><w:tc>{samples.build_paragraph('a')}</w:tc><w:tc>{inner_table}</w:tc></w:tr></w:tbl>"
    )
    note = f"<w:footnotes {samples.W}><w:footnote>{samples.build_paragraph('A note.')}</w:footnote></w:footnotes>"
    core = '<cp:p xmlns:cp="c" xmlns:dc="d"><dc:title>On trees</dc:title></cp:p>'
    source = samples.build_docx(body, word__footnotes_xml=note, docProps__core_xml=core)
    document = await parse(tmp_path, source, "trees.docx")
    assert document.title == "On trees"
    assert show(document) == [
        ("heading", 1, None, "Trees"),
        ("heading", 2, None, "Kinds"),
        ("paragraph", None, None, "A baobab is\nwide."),
        ("list", None, None, "- one\n- two"),
        ("table", None, None, "a | inner"),
        ("paragraph", None, None, "A note."),
    ]


async def test_a_pptx_has_its_slides_in_their_order(tmp_path: Path) -> None:
    source = samples.build_pptx(
        samples.build_shape("First", "title") + samples.build_shape("Water") + samples.build_shape("1", "sldNum"),
        samples.build_shape("Second", "ctrTitle")
        + "<a:tbl><a:tr><a:tc><a:p><a:r><a:t>x</a:t></a:r></a:p></a:tc></a:tr></a:tbl>",
    )
    document = await parse(tmp_path, source, "talk.pptx")
    assert document.pages == 2
    assert show(document) == [
        ("heading", 1, 1, "First"),
        ("paragraph", None, 1, "Water"),
        ("heading", 1, 2, "Second"),
        ("table", None, 2, "x"),
    ]


async def test_an_xlsx_has_a_heading_and_a_table_for_each_sheet(tmp_path: Path) -> None:
    source = samples.build_xlsx({"Trees": [["name", "height"], ["Baobab", 25], ["Acacia", 8.5]], "Rain": [["dry"]]})
    document = await parse(tmp_path, source, "trees.xlsx")
    assert document.title is None
    assert show(document) == [
        ("heading", 1, None, "Trees"),
        ("table", None, None, "name | height\nBaobab | 25\nAcacia | 8.5"),
        ("heading", 1, None, "Rain"),
        ("table", None, None, "dry"),
    ]


async def test_a_pdf_has_pages_headings_and_paragraphs(tmp_path: Path) -> None:
    first = [(24, "Trees"), (12, "A baobab is"), (12, "wide."), (12, ""), (12, "It stores water.")]
    document = await parse(tmp_path, samples.build_pdf(first, [(12, "It is old.")], title="On trees"), "a.pdf")
    assert (document.title, document.pages) == ("On trees", 2)
    assert show(document) == [
        ("heading", 1, 1, "Trees"),
        ("paragraph", None, 1, "A baobab is\nwide."),
        ("paragraph", None, 1, "It stores water."),
        ("paragraph", None, 2, "It is old."),
    ]


async def test_the_content_decides_and_not_what_the_sender_says(tmp_path: Path) -> None:
    source = samples.build_pdf([(12, "A pdf.")])
    assert (await parse(tmp_path, source, "a.txt", "text/plain")).media_type == "application/pdf"
    source = samples.build_xlsx({"S": [["x"]]})
    assert (await parse(tmp_path, source, "a.docx")).media_type.endswith("spreadsheetml.sheet")


async def test_a_text_holds_nothing_that_a_database_cannot_keep(tmp_path: Path) -> None:
    document = await parse(tmp_path, b"<p>a&#0;b\x00c&#xd800;</p>" + b"<p>rest of the page</p>" * 9, "a.html")
    assert "\0" not in document.text
    assert document.text.encode()
