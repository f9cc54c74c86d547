"""Processes with a socket to the one that started them."""

import sys
from pathlib import Path

import pytest

from pagemill.render.child_process import ChildProcess

_INTERRUPTED = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)  # a terminal's Ctrl-C, while modules are imported
from pagemill.render.child_process import connect_to_parent, receive, send

def main():
    with connect_to_parent() as connection:
        send(connection, receive(connection).upper())
"""


def test_an_interrupt_of_the_terminal_is_for_the_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "interrupted.py").write_text(_INTERRUPTED)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    child = ChildProcess("interrupted", max_silence_s=60)
    child.send(b"alive")
    assert child.receive() == b"ALIVE"
    child.close()
    assert capfd.readouterr().err == ""
