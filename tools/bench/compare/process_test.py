"""Real processes: a driver and a server that generate fake tokens."""

import contextlib
import os
import sys
from pathlib import Path

import pytest
from pagemill.engine.reserved_port import reserved_port

from tools.bench.compare.environment import PeerError
from tools.bench.compare.peers.base import DRIVERS, Command
from tools.bench.compare.process import DriverProcess, ServerProcess

DRIVER = f"""
import sys, time
sys.path.insert(0, {str(DRIVERS)!r})
from driver_loop import serve

def load():
    print("loading")  # not an answer
    def generate(prompts, output_len):
        if prompts[0] == [13]:
            raise SystemExit("thirteen")
        begin = time.perf_counter()
        return [[begin + 1 + step for step in range(output_len)] for _ in prompts]
    return generate

serve(load)
"""

SERVER = """
import http.server, json, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self):
        Handler.asked += 1
        self.send_response(200 if Handler.asked > 2 else 503)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "m"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = body["max_tokens"]
        self.send_response(200)
        self.end_headers()
        events = [{"choices": [{"text": "x"}]}] * count
        if body["prompt"] == [13]:
            count = 1
        events.append({"choices": [], "usage": {"completion_tokens": count}})
        for event in [json.dumps(event) for event in events] + ["[DONE]"]:
            self.wfile.write(f"data: {event}\\n\\n".encode())

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def _script(folder: Path, text: str, *arguments: str) -> Command:
    script = folder / "peer.py"
    script.write_text(text)
    return Command((sys.executable, str(script), *arguments))


def test_a_driver_answers_with_the_times_of_its_tokens(tmp_path: Path) -> None:
    process = DriverProcess(_script(tmp_path, DRIVER), tmp_path / "log")
    try:
        times = process.run([[1], [2]], 3, 2)
        assert process.resident_bytes() > 1e6
    finally:
        process.stop()
    assert [each.output_tokens for each in times] == [3, 3]
    assert times[0].sent == 0
    assert 1 <= times[0].first < 1.5
    assert times[0].gaps == pytest.approx([1, 1])
    assert times[0].last == pytest.approx(times[0].first + 2)
    assert "loading" in (tmp_path / "log").read_text()


def test_a_driver_that_ends_says_why(tmp_path: Path) -> None:
    process = DriverProcess(_script(tmp_path, DRIVER), tmp_path / "log")
    try:
        with pytest.raises(PeerError, match="(?s)the driver ended.*thirteen"):
            process.run([[13]], 3, 1)
    finally:
        process.stop()


def test_a_paused_process_uses_no_processor(tmp_path: Path) -> None:
    spin = "print('{}', flush=True)\nwhile True: pass"
    process = DriverProcess(_script(tmp_path, spin), tmp_path / "log")

    def state() -> str:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    try:
        process.pause()
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert state() == "T"
        process.resume()
        os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)
        assert state() in "RS"
        process.pause()
    finally:
        process.stop()
    assert not Path(f"/proc/{process.pid}").exists()


def test_a_server_is_waited_for_and_streams(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(reserved_port())
        process = ServerProcess(_script(tmp_path, SERVER, str(port)), tmp_path / "log", port)
        stack.callback(process.stop)
        times = process.run([[1], [2], [3]], 4, 2)
        assert [each.output_tokens for each in times] == [4, 4, 4]
        assert all(len(each.gaps) == 3 for each in times)
        with pytest.raises(PeerError, match="a request failed: 1 tokens instead of 4"):
            process.run([[13]], 4, 1)


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    command = _script(tmp_path, "raise SystemExit('port taken')")
    message = "(?s)the server ended.*port taken"
    with reserved_port() as port, pytest.raises(PeerError, match=message):
        ServerProcess(command, tmp_path / "log", port)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="No such file"):
        DriverProcess(Command((str(tmp_path / "nothing"),)), tmp_path / "log")
