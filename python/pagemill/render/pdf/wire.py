"""What crosses between this process and one that reads a PDF file, as MessagePack.

The server sends a `PdfSetup`, then the file as it is. The other answers with one `PdfReply`.
"""

from __future__ import annotations

import msgspec


class PdfSetup(msgspec.Struct, array_like=True):
    """Limits of the process: its processor time, and its memory beyond what it has with the file;
    and of what is read: pages, and characters of all of them."""

    max_cpu_s: float
    max_extra_bytes: int
    max_pages: int
    max_chars: int


class PdfText(msgspec.Struct, array_like=True, tag=True):
    """The text of a file, and the processor time that it took, with that of the process's start."""

    text: str
    cpu_s: float


class PdfRefusal(msgspec.Struct, array_like=True, tag=True):
    """Why there is none."""

    error: str


PdfReply = PdfText | PdfRefusal
