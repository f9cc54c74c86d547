"""PDF files are read, and those that take much of a machine, or end their reader, are refused."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import msgspec
import pytest

from pagemill.render.child_process import receive, send
from pagemill.render.errors import RenderError
from pagemill.render.pdf import pages, worker
from pagemill.render.pdf.extraction import extract_text
from pagemill.render.pdf.pages import read_pages
from pagemill.render.pdf.testing.pdfs import FONT, encrypted, page, pdf, pdf_of, stream, trunk
from pagemill.render.pdf.wire import PdfRefusal, PdfReply, PdfSetup
from pagemill.render.stop import Stop

TOO_LONG = b" " * 76_000_000  # bytes; pypdf decompresses 75,000,000
FORM = b"/Type /XObject /Subtype /Form /BBox [0 0 1 1] /Resources << %b >>"
TO_UNICODE = b"1 begincodespacerange <00> <ff> endcodespacerange 2 beginbfchar <61> <%b> endbfchar"


def one_page(*objects: bytes) -> bytes:
    """A file of a page whose content is the first of `objects`, number 5."""
    return pdf(*trunk(b"4 0 R", 1), FONT, page(5), *objects)


def test_text_of_pages() -> None:
    data = pdf_of("Sum (of) both \\ in é", "", "Second page")
    found = read_pages(data, 60)
    assert found.text == "Sum (of) both \\ in é\n\nSecond page"
    assert 0 < found.cpu_s < 60


@pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128"])
def test_files_encrypted_without_a_password_are_read(algorithm: str) -> None:
    data = encrypted(pdf_of("a secret"), "", algorithm)
    assert b"/Encrypt" in data
    assert extract_text(data, 10, 100) == "a secret"
    with pytest.raises(RenderError, match="send it without encryption"):
        extract_text(encrypted(pdf_of("a secret"), "password", algorithm), 10, 100)


def test_text_is_unicode() -> None:
    """A font may say that a letter is half a surrogate pair, or NUL."""
    for utf_16, text in ((b"d83d", "\ufffd"), (b"0000", ""), (b"d83dde00", "\U0001f600")):
        font = b"<< /Type /Font /Subtype /Type1 /BaseFont /F /ToUnicode 6 0 R >>"
        table = stream(TO_UNICODE % utf_16)
        content = stream(b"BT /F1 12 Tf (bab) Tj ET")
        data = pdf(*trunk(b"4 0 R", 1), font, page(5), content, table)
        assert extract_text(data, 1, 100) == f"b{text}b"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"%PDF-1.7 ...", "is damaged"),
        (pdf(b"<< /Type /Catalog /Pages 2 0 R >>", b"[" * 1_000_000), "is damaged"),
        (pdf_of("", ""), "have no text"),
        (one_page(stream(TOO_LONG)), "is too complex"),
        (one_page(stream(b"[" * 100_000)), "have no text"),
        (pdf(*trunk(b"2 0 R", 1), FONT), "is damaged"),
        (pdf(*trunk(b"4 0 R " * 50_000, 50_000), FONT, page(5), stream(b"")), "more than 3 pages"),
        (pdf_of("a", "b", "c", "d"), "more than 3 pages"),
        (pdf_of("a" * 30, "b" * 31), "more than 60 characters"),
    ],
)
def test_files_that_are_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(RenderError, match=sentence):
        extract_text(data, 3, 60)


def test_forms_are_bounded() -> None:
    """Each form of 40 shows the next twice, and so the last would be shown 2**40 times."""
    font, next_form = b"/Font << /F1 3 0 R >>", b"/XObject << /X %d 0 R >>"
    shown = b"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Resources << %b >> >>"
    forms = [stream(b"/X Do /X Do", FORM % (next_form % (7 + at))) for at in range(40)]
    last = stream(b"BT /F1 12 Tf (a) Tj ET", FORM % font)
    first = stream(b"/X Do"), *forms
    data = pdf(*trunk(b"4 0 R", 1), FONT, shown % (next_form % 6), *first, last)
    assert 0 < extract_text(data, 1, 100_000).count("a") <= 5_000


def test_as_much_as_a_file_may_have() -> None:
    assert len(extract_text(pdf_of("a" * 30, "b" * 20, "c" * 10), 3, 60)) == 60 + 2 * len("\n\n")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = one_page(stream(b"BT /F1 12 Tf (a) Tj ET" + b" " * 20_000_000))
    assert read_pages(data, 60).text == "a"
    monkeypatch.setattr(pages, "_MAX_BYTES", 2**25)
    with pytest.raises(RenderError, match="more than 33554432 bytes of memory to read"):
        read_pages(data, 60)


def test_memory_of_the_reply_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may leave room for its text, and none for the message that has it."""

    def send_little(connection: socket.socket, payload: bytes) -> None:
        if b"letters" in payload:
            raise MemoryError
        send(connection, payload)

    ours, theirs = socket.socketpair()
    monkeypatch.setattr(worker, "connect_to_parent", lambda: theirs)
    for limit in ("limit_memory", "limit_time"):
        monkeypatch.setattr(worker, limit, lambda most: None)
    monkeypatch.setattr(worker.logging, "disable", lambda: None)
    monkeypatch.setattr(worker, "send", send_little)
    with ours:
        send(ours, msgspec.msgpack.encode(PdfSetup(60.0, 77, 10, 100)))
        send(ours, pdf_of("letters"))
        worker.main()
        answer = receive(ours)
    assert answer is not None
    reply = msgspec.msgpack.decode(answer, type=PdfReply)
    assert isinstance(reply, PdfRefusal) and "more than 77 bytes of memory" in reply.error


def test_processor_time_is_bounded() -> None:
    with pytest.raises(RenderError, match=r"more than 0\.001 s of processor time to read"):
        read_pages(pdf_of(*["text"] * 500), 0.001)


def test_processes_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(pages.ChildProcess):
        def receive(self) -> bytes | None:
            os.kill(self.pid, signal.SIGSEGV)
            return super().receive()

    with monkeypatch.context() as changed:
        changed.setattr(pages, "ChildProcess", Ended)
        with pytest.raises(RenderError, match="its reader ended with signal 11"):
            read_pages(pdf_of(*["text"] * 500), 60)
    monkeypatch.setattr(pages, "MAX_PAGES", "a mistake of ours")
    with pytest.raises(RuntimeError, match="reads PDFs failed with status 1"):
        read_pages(pdf_of("text"), 60)


@pytest.mark.parametrize("is_early", [True, False])
def test_readers_whose_text_is_not_wanted_any_more_end(
    is_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their processes are killed, before they are sent the file or while they read it."""
    stop = Stop()
    pids: list[int] = []

    class Stopped(pages.ChildProcess):
        def send(self, payload: bytes) -> None:
            if not is_early:
                super().send(payload)
                stop.set()
            pids.append(self.pid)

    if is_early:
        stop.set()
    monkeypatch.setattr(pages, "ChildProcess", Stopped)
    with pytest.raises(RenderError, match="its reader ended with signal 9"):
        read_pages(pdf_of(*["text"] * 500), 60, stop)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    stop.set()  # also when nothing is left to end


def test_no_other_program_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pypdf would have jbig2dec, if it is installed, decode whatever names its filter."""
    program = tmp_path / "jbig2dec"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(RenderError, match="needs what this server does not have"):
        read_pages(one_page(b"<< /Filter /JBIG2Decode /Length 1 >>\nstream\na\nendstream"), 60)
    assert not (tmp_path / "started").exists()


def test_defects_are_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    data = pdf_of("text").replace(b"%PDF-1.7", b"%PDF-1.7 % moves all that is behind it")
    assert read_pages(data, 60).text == "text"
    assert capfd.readouterr().err == ""


def test_pypdf_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    with pytest.raises(RenderError, match=r"pip install 'pagemill\[pdf\]'"):
        read_pages(pdf_of("text"), 60)
