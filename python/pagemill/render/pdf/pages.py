"""The text of PDF files, each read in a process of its own, with limits on its time and memory:
what a small file makes of either is for its reader to find out.

    text, cpu_s = read_pages(data, max_cpu_s=60)
"""

from __future__ import annotations

from importlib.util import find_spec

import msgspec

from pagemill.render.child_process import TIME_IS_UP, ChildProcess
from pagemill.render.errors import RenderError
from pagemill.render.pdf.wire import PdfRefusal, PdfReply, PdfSetup, PdfText
from pagemill.render.stop import Stop

MAX_PAGES = 1_000
MAX_CHARS = 2**23
_MAX_BYTES = 2**29  # measured: 150 MB for a page with the longest stream that pypdf takes
_SILENCE = 4.0  # times the processor time, if the machine is too busy to give a process its time
_START_S = 10.0


def is_pdf(data: bytes) -> bool:
    """Whether a file says that it is a PDF."""
    return data.startswith(b"%PDF-")


def read_pages(data: bytes, max_cpu_s: float, stop: Stop | None = None) -> PdfText:
    """The text of a file that has `MAX_PAGES` pages and `MAX_CHARS` characters at most. Blocks;
    `stop` ends its process, and what is returned or raised then says nothing about the file.

    Raises:
        RenderError: it is damaged, needs a password, has no text, or exceeds a limit, which
            `max_cpu_s` of processor time are, too; or pypdf is not installed.
    """
    if find_spec("pypdf") is None:
        raise RenderError(
            "it is a PDF, which are read by pypdf: pip install 'pagemill[pdf]' where the server"
            " runs, or send the text of its pages, or images of them to a model that takes images"
        )
    setup = msgspec.msgpack.encode(PdfSetup(max_cpu_s, _MAX_BYTES, MAX_PAGES, MAX_CHARS))
    child = ChildProcess("pagemill.render.pdf.worker", _START_S + _SILENCE * max_cpu_s)
    try:
        with (stop or Stop()).ends(child):
            return _exchange(child, setup, data, max_cpu_s)
    finally:
        child.close()


def _exchange(child: ChildProcess, setup: bytes, data: bytes, max_cpu_s: float) -> PdfText:
    try:
        child.send(setup)
        child.send(data)
        answer = child.receive()
    except TimeoutError:
        raise RenderError("it takes too long to read; send fewer of its pages") from None
    except ConnectionError:
        answer = None
    if answer is None:
        raise _how_it_ended(child, max_cpu_s)
    reply = msgspec.msgpack.decode(answer, type=PdfReply)
    if isinstance(reply, PdfRefusal):
        raise RenderError(reply.error)
    return reply


def _how_it_ended(child: ChildProcess, max_cpu_s: float) -> Exception:
    status = child.status()
    if status == -TIME_IS_UP:
        return RenderError(
            f"it takes more than {max_cpu_s:g} s of processor time to read; send fewer of its pages"
        )
    if status is not None and status < 0:
        return RenderError(f"it cannot be read: its reader ended with signal {-status}")
    return RuntimeError(f"the process that reads PDFs failed with status {status}")
