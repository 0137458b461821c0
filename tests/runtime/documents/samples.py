"""Documents of each kind, made from scratch, so that a test says what is in them."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image, ImageDraw

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
P = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    f'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:r="{R}"'
)
X = f'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="{R}"'


def build_archive(parts: Mapping[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def build_relations(*relations: tuple[str, str]) -> str:
    """Relations with the ids r1, r2 and so on. Each is a type and a target."""
    rows = "".join(
        f'<Relationship Id="r{at}" Type="{R}/{kind}" Target="{target}"/>'
        for at, (kind, target) in enumerate(relations, 1)
    )
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{rows}</Relationships>'


def build_docx(body: str, **more: str | bytes) -> bytes:
    """body: the content of w:body. more: other parts, `__` in their names for a slash, `_xml` for `.xml`."""
    styles = (
        f'<w:styles {W}><w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>'
        '<w:style w:styleId="Mine"><w:name w:val="Mine"/><w:basedOn w:val="berschrift2"/></w:style>'
        '<w:style w:styleId="Loop"><w:name w:val="Loop"/><w:basedOn w:val="Loop"/></w:style></w:styles>'
    )
    return build_archive(
        {
            "_rels/.rels": build_relations(("officeDocument", "word/document.xml")),
            "word/_rels/document.xml.rels": build_relations(("styles", "styles.xml"), ("footnotes", "footnotes.xml")),
            "word/styles.xml": styles,
            "word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
            **{name.replace("__", "/").replace("_xml", ".xml"): content for name, content in more.items()},
        }
    )


def build_paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def build_pptx(*slides: str) -> bytes:
    """slides: the content of each p:spTree. Their files are in the opposite order of the slides."""
    files = [f"slides/slide{len(slides) - at}.xml" for at in range(len(slides))]
    ids = "".join(f'<p:sldId id="{255 + at}" r:id="r{at}"/>' for at in range(1, len(slides) + 1))
    return build_archive(
        {
            "_rels/.rels": build_relations(("officeDocument", "ppt/presentation.xml")),
            "ppt/presentation.xml": f"<p:presentation {P}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": build_relations(*(("slide", file) for file in files)),
            **{
                f"ppt/{file}": f"<p:sld {P}><p:cSld><p:spTree>{slide}</p:spTree></p:cSld></p:sld>"
                for file, slide in zip(files, slides, strict=True)
            },
        }
    )


def build_shape(text: str, placeholder: str = "body") -> str:
    return (
        f'<p:sp><p:nvSpPr><p:nvPr><p:ph type="{placeholder}"/></p:nvPr></p:nvSpPr>'
        f"<p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
    )


def build_xlsx(sheets: Mapping[str, Sequence[Sequence[str | float]]], **more: str | bytes) -> bytes:
    """sheets: the rows of each by its name. more: other parts, as in build_docx."""
    parts: dict[str, str | bytes] = {
        "_rels/.rels": build_relations(("officeDocument", "xl/workbook.xml")),
        "xl/_rels/workbook.xml.rels": build_relations(
            *(("worksheet", f"worksheets/sheet{at}.xml") for at in range(1, len(sheets) + 1))
        ),
        "xl/workbook.xml": f"<workbook {X}><sheets>"
        + "".join(f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>' for at, name in enumerate(sheets, 1))
        + "</sheets></workbook>",
    }
    for at, rows in enumerate(sheets.values(), 1):
        cells = "".join(f"<row>{''.join(map(_build_cell, row))}</row>" for row in rows)
        parts[f"xl/worksheets/sheet{at}.xml"] = f"<worksheet {X}><sheetData>{cells}</sheetData></worksheet>"
    return build_archive(
        {**parts, **{name.replace("__", "/").replace("_xml", ".xml"): content for name, content in more.items()}}
    )


def _build_cell(value: str | float) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
    return f"<c><v>{value}</v></c>"


def build_pdf(*pages: Sequence[tuple[int, str]], title: str = "A title") -> bytes:
    """pages: the lines of each, with the size of their letters in points, from the top of the page down."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, lines in enumerate(pages):
        content, height = "", 780.0
        for size, text in lines:
            height -= 1.2 * size if text else 2 * size
            content += f"BT /F1 {size} Tf 72 {height:g} Td ({text}) Tj ET\n"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * at} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}endstream")
    objects.append(f"<< /Title ({title}) >>")
    return build_pdf_file(objects, f"/Root 1 0 R /Info {len(objects)} 0 R")


def build_pdf_file(objects: Sequence[str], trailer: str) -> bytes:
    """A PDF of these objects, which are numbered from 1."""
    file, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(file))
        file += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    begin = len(file)
    file += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    return (file + f"trailer\n<< /Size {len(objects) + 1} {trailer} >>\nstartxref\n{begin}\n%%EOF\n").encode()


def draw_lines(*lines: str, size: int = 24, width: int = 640) -> Image.Image:
    """A white page with black lines of text, from its top down."""
    page = Image.new("RGB", (width, round(1.5 * size * len(lines)) + 2 * size), "white")
    for at, line in enumerate(lines):
        ImageDraw.Draw(page).text((size, size + round(1.5 * size * at)), line, fill="black", font_size=size)
    return page


def encode_picture(kind: str, *pages: Image.Image, **options: Any) -> bytes:
    """pages: more than one for a TIFF, a PDF or a GIF."""
    file = io.BytesIO()
    more = {"save_all": True, "append_images": pages[1:]} if len(pages) > 1 else {}
    pages[0].save(file, kind, **more, **options)
    return file.getvalue()


def encode_black_square(side: int) -> bytes:
    """A PNG of side x side black pixels, of which only a few rows at a time are in memory."""
    compressor = zlib.compressobj()
    row = bytes(1 + (side + 7) // 8)
    pixels = b"".join([*(compressor.compress(row) for _ in range(side)), compressor.flush()])
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    )


def build_mixed_pdf(*pages: str | Image.Image | None) -> bytes:
    """pages: a typed line, a scan or an empty page each."""
    kids = " ".join(f"{4 + 3 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, page in enumerate(pages):
        content, scan = "", "null"
        if isinstance(page, str):
            content = f"BT /F1 12 Tf 72 700 Td ({page}) Tj ET"
        elif page is not None:
            content = f"{page.width} 0 0 {page.height} 0 0 cm /Im1 Do"
            digits = encode_picture("JPEG", page).hex() + ">"
            scan = (
                f"<< /Type /XObject /Subtype /Image /Width {page.width} /Height {page.height} /BitsPerComponent 8 "
                f"/ColorSpace /DeviceRGB /Filter [/ASCIIHexDecode /DCTDecode] /Length {len(digits)} >>\n"
                f"stream\n{digits}\nendstream"
            )
        width, height = page.size if isinstance(page, Image.Image) else (595, 842)
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Contents {5 + 3 * at} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> /XObject << /Im1 {6 + 3 * at} 0 R >> >> >>"
        )
        objects += [f"<< /Length {len(content)} >>\nstream\n{content}\nendstream", scan]
    return build_pdf_file(objects, "/Root 1 0 R")
