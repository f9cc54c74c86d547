"""PDF files of tests, written object by object."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence

FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"


def pdf(*objects: bytes) -> bytes:
    """A file of objects, which are numbered from 1; the first is the catalog."""
    file = bytearray(b"%PDF-1.7\n")
    places: list[int] = []
    for number, content in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    file += b"".join(b"%010d 00000 n \n" % place for place in places)
    file += b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1)
    return bytes(file + b"startxref\n%d\n%%%%EOF\n" % table)


def stream(content: bytes, head: bytes = b"") -> bytes:
    """An object with a compressed stream."""
    packed = zlib.compress(content)
    head = b"<< %b /Filter /FlateDecode /Length %d >>" % (head, len(packed))
    return head + b"\nstream\n" + packed + b"\nendstream"


def pdf_of(*pages: str) -> bytes:
    """A file of pages that each show a line of text, of Latin-1."""
    first = 4
    kids = b" ".join(b"%d 0 R" % (first + 2 * at) for at in range(len(pages)))
    objects: list[bytes] = []
    for at, text in enumerate(pages):
        objects.append(page(first + 2 * at + 1))
        shown = text.encode("latin-1").replace(b"\\", b"\\\\")
        shown = shown.replace(b"(", b"\\(").replace(b")", b"\\)")
        objects.append(stream(b"BT /F1 12 Tf 72 720 Td (%b) Tj ET" % shown))
    return pdf(*trunk(kids, len(pages)), FONT, *objects)


def trunk(kids: bytes, count: int) -> Sequence[bytes]:
    """Objects 1 and 2: the catalog, and the tree of pages, whose font is object 3."""
    head = b"<< /Type /Pages /Kids [%b] /Count %d /MediaBox [0 0 612 792]"
    resources = b"/Resources << /Font << /F1 3 0 R >> >> >>"
    return b"<< /Type /Catalog /Pages 2 0 R >>", b"%b %b" % (head % (kids, count), resources)


def page(contents: int) -> bytes:
    """A page of the tree in object 2, whose content is object number `contents`."""
    return b"<< /Type /Page /Parent 2 0 R /Contents %d 0 R >>" % contents


def encrypted(data: bytes, password: str, algorithm: str = "RC4-128") -> bytes:
    """The file, encrypted by pypdf."""
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    writer.encrypt(password, "owner", algorithm=algorithm)
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()
