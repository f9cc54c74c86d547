"""fetch_hub with huggingface_hub itself, against a hub of this process."""

import hashlib
import io
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from pagemill.weights.errors import FetchError
from pagemill.weights.fetch import resolve

COMMIT = "c0ffee" + "0" * 34
FILES = {
    "README.md": b"#",
    "config.json": b"{}",
    "model.safetensors": b"weights" * 5000,
    "pytorch_model.bin": b"pickle",
}
_API = re.compile(r"/api/models/owner/(\w+)(?:/(revision|tree)/(\w+))?")
_FILE = re.compile(r"/owner/model/resolve/(\w+)/([\w.]+)")


class Hub(BaseHTTPRequestHandler):
    """Has owner/model, whose branches are main and v1; owner/gated needs terms to be accepted."""

    fetched: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if (match := _API.fullmatch(path)) is not None:
            self._about(match[1], match[2], match[3])
        elif (match := _FILE.fullmatch(path)) is not None:
            assert match[1] == COMMIT
            if self.command == "GET":
                self.fetched.append(match[2])
            data = FILES[match[2]]
            digest = hashlib.sha1(data).hexdigest()
            self._send(200, data, {"X-Repo-Commit": COMMIT, "ETag": f'"{digest}"'})
        else:
            self._send(404, b"")

    do_HEAD = do_GET  # noqa: N815  (the names are the library's)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def _about(self, name: str, kind: str | None, revision: str | None) -> None:
        if name == "gated":
            self._refuse(403, "GatedRepo")
        elif name != "model":
            self._refuse(401, "RepoNotFound")
        elif revision not in (None, "main", "v1", COMMIT):
            self._refuse(404, "RevisionNotFound")
        elif kind == "tree":
            self._json(
                [
                    {"type": "file", "path": path, "size": len(data), "oid": "0" * 40}
                    for path, data in FILES.items()
                ]
            )
        else:
            siblings = [{"rfilename": path} for path in FILES]
            self._json({"id": "owner/model", "sha": COMMIT, "siblings": siblings})

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": "no"})

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the files that the hub sent."""
    files: list[str] = []
    handler = type("Handler", (Hub,), {"fetched": files})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield files
        server.shutdown()
        thread.join()


def _resolve(cache: Path, name: str, revision: str | None = None) -> Path:
    return resolve(name, revision=revision, cache_dir=cache, stream=io.StringIO())


def test_only_data_is_fetched_and_only_once(tmp_path: Path, fetched: list[str]) -> None:
    folder = _resolve(tmp_path, "owner/model")
    wanted = ["config.json", "model.safetensors"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(fetched) == wanted
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert _resolve(tmp_path, "owner/model") == folder
    assert len(fetched) == 2
    assert _resolve(tmp_path, "owner/model", "v1") == folder  # the same commit
    assert len(fetched) == 2


@pytest.mark.parametrize(
    ("name", "revision", "words"),
    [
        ("owner/gated", None, "owner/gated is gated: accept its terms .* set HF_TOKEN"),
        ("owner/none", None, "the hub has no model owner/none, or not for you"),
        ("owner/model", "v2", "owner/model has no revision 'v2'"),
        ("owner/model/q4.gguf", None, "owner/model has no file q4.gguf"),
    ],
)
def test_what_the_hub_refuses(tmp_path: Path, name: str, revision: str | None, words: str) -> None:
    with pytest.raises(FetchError, match=words):
        _resolve(tmp_path, name, revision)


def test_a_hub_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(FetchError, match="owner/model could not be fetched .*check the network"):
        _resolve(tmp_path, "owner/model")
