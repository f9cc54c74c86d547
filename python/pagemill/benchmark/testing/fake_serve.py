"""A program that takes the flags of `pagemill serve` and streams fake tokens.

    with running_server({"cache_dir": str(folder)}, COMMAND) as server:

It writes its flags and each request into files of --cache-dir, and is ready later if that folder is
empty. `--model=broken` ends it before it listens, `--model=fragile` at the first request;
requests of more than MAX_TOKENS are refused.
"""

import http.server
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, __file__)
COLD_S = 0.3
MAX_TOKENS = 100
_READY = threading.Event()


def requests(folder: Path) -> list[dict[str, Any]]:
    """Returns the bodies of the requests of all servers that had this folder."""
    return [json.loads(line) for line in (folder / "requests").read_text().splitlines()]


def starts(folder: Path) -> list[list[str]]:
    """Returns the flags of all servers that had this folder."""
    return [json.loads(line) for line in (folder / "starts").read_text().splitlines()]


class _Handler(http.server.BaseHTTPRequestHandler):
    folder = Path()
    model = ""

    def do_GET(self) -> None:
        self.send_response(200 if _READY.is_set() else 503)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "fake"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.model == "fragile":
            print("out of memory", flush=True)
            os._exit(4)
        if body["max_tokens"] > MAX_TOKENS:
            self.send_error(400, "too long")
            return
        with (self.folder / "requests").open("a") as file:
            file.write(json.dumps(body) + "\n")
        self.send_response(200)
        self.end_headers()
        count = body["max_tokens"]
        events: list[Any] = [{"choices": [{"text": "x"}]}] * count
        events.append({"choices": [], "usage": {"completion_tokens": count}})
        for event in [*(json.dumps(event) for event in events), "[DONE]"]:
            self.wfile.write(f"data: {event}\n\n".encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _main(flags: dict[str, str]) -> None:
    if flags.get("--model") == "broken":
        sys.exit("no such model")
    _Handler.folder = Path(flags["--cache-dir"])
    _Handler.model = flags.get("--model", "")
    address = (flags["--host"], int(flags["--port"]))
    server = http.server.ThreadingHTTPServer(address, _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if not any(_Handler.folder.iterdir()):
        time.sleep(COLD_S)
    with (_Handler.folder / "starts").open("a") as file:
        file.write(json.dumps(sys.argv[1:]) + "\n")
    _READY.set()
    threading.Event().wait()


if __name__ == "__main__":
    _main({name: value for name, _, value in (flag.partition("=") for flag in sys.argv[1:])})
