"""The process that reads one PDF file, with hard limits on its time and memory; see `wire`."""

from __future__ import annotations

import logging
import time

import msgspec

from pagemill.render.child_process import (
    connect_to_parent,
    limit_memory,
    limit_time,
    receive,
    send,
)
from pagemill.render.errors import RenderError
from pagemill.render.pdf.extraction import extract_text
from pagemill.render.pdf.wire import PdfRefusal, PdfReply, PdfSetup, PdfText


def main() -> None:
    """Answers what the socket carries, and ends."""
    with connect_to_parent() as connection:
        message, data = receive(connection), receive(connection)
        if message is None or data is None:
            return
        setup = msgspec.msgpack.decode(message, type=PdfSetup)
        limit_memory(setup.max_extra_bytes)
        limit_time(setup.max_cpu_s)
        logging.disable()  # pypdf describes each defect of a file, of which there may be millions
        try:
            send(connection, msgspec.msgpack.encode(_reply(setup, data)))
        except MemoryError:
            reason = (
                f"it takes more than {setup.max_extra_bytes} bytes of memory to read; send fewer of"
                " its pages"
            )
            send(connection, msgspec.msgpack.encode(PdfRefusal(reason)))


def _reply(setup: PdfSetup, data: bytes) -> PdfReply:
    try:
        text = extract_text(data, setup.max_pages, setup.max_chars)
    except RenderError as error:
        return PdfRefusal(error.message)
    return PdfText(text, time.process_time())
