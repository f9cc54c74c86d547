"""A sender whose server refuses or does not answer: the update that it may have begun is ended, and
that of another sender is not."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagemill.rl import SendError, WeightSender

TENSORS = {"a": np.zeros(4, np.float32), "b": np.ones(4, np.float32)}
START, UPDATE, FINISH = "start_weight_update", "update_weights", "finish_weight_update"


class FakeServer:
    """Answers 200, except to a route in `statuses` once; 0 is no answer."""

    def __init__(self, folder: Path, statuses: dict[str, int], delay_s: float) -> None:
        self.statuses, self.delay_s = dict(statuses), delay_s
        self.transfer = {"folder": str(folder), "max_bytes": 1 << 20}
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.address = ""

    @property
    def routes(self) -> list[str]:
        """What was posted after the question for the folder."""
        return [route for route, _ in self.posts[1:]]

    def post(self, route: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.posts.append((route, fields))
        status = self.statuses.pop(route, 200)
        if status == 200:
            return 200, self.transfer
        return status, {"error": {"message": f"no {route}"}}


@contextlib.contextmanager
def fake_server(
    folder: Path, statuses: dict[str, int], delay_s: float = 0.0
) -> Iterator[FakeServer]:
    fake = FakeServer(folder, statuses, delay_s)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = fake.post(self.path.removeprefix("/"), json.loads(body))
            time.sleep(fake.delay_s)
            if status:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fake.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()


def test_tensors_go_in_files_between_start_and_finish(tmp_path: Path) -> None:
    with fake_server(tmp_path, {}) as fake:
        WeightSender(fake.address, bucket_bytes=16).send(TENSORS.items(), weight_version="7")
        assert fake.routes == [START, UPDATE, UPDATE, FINISH]
        assert fake.posts[-1][1] == {"weight_version": "7"}
        WeightSender(fake.address).send(TENSORS.items())
        assert fake.routes[-3:] == [START, UPDATE, FINISH]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("statuses", "routes", "message"),
    [
        ({START: 0}, [START, FINISH], f"does not answer /{START}"),
        ({START: 0, FINISH: 409}, [START, FINISH], f"does not answer /{START}"),
        ({START: 504, FINISH: 409}, [START, FINISH], f"no {START}"),
        ({START: 409}, [START], f"no {START}"),
        ({UPDATE: 409}, [START, UPDATE, FINISH], f"no {UPDATE}"),
        ({UPDATE: 400, FINISH: 0}, [START, UPDATE, FINISH], f"no {UPDATE}"),
        ({FINISH: 400}, [START, UPDATE, FINISH, FINISH], f"no {FINISH}"),
    ],
)
def test_an_error_ends_the_update(
    statuses: dict[str, int], routes: list[str], message: str, tmp_path: Path
) -> None:
    with fake_server(tmp_path, statuses) as fake:
        with pytest.raises(SendError, match=message) as error:
            WeightSender(fake.address).send(TENSORS.items())
        assert error.value.status == next(iter(statuses.values()))
        assert fake.routes == routes


def test_the_server_has_longer_to_answer_than_to_wait(tmp_path: Path) -> None:
    with fake_server(tmp_path, {}, delay_s=0.1) as fake:
        WeightSender(fake.address, timeout_s=0.01).send(TENSORS.items())
        assert fake.posts[1] == (START, {"mode": "keep", "timeout_s": 0.01})
