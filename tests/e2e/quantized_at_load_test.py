"""A real server with `--quantization`: its operator gives it other weights."""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.families.word_tokenizer import save_tokenizer
from tests.parity.llama_checkpoint import write_llama

OPTIONS = ["--quantization=int4", '--quantization-config={"ignore": ["layers.0"]}']


def _model(path: Path, seed: int) -> Path:
    path.mkdir()
    write_llama(path, "bf16", seed)
    save_tokenizer(path)
    return path


def _answer(server: ServerProcess) -> str:
    body = {"model": NAME, "prompt": "w8 w6 w7 w200 w31", "max_tokens": 16, "temperature": 0}
    body["ignore_eos"] = True
    response = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


@pytest.mark.parametrize("more", [[], ["--isolate-engine"]])
def test_new_weights_are_quantized_alike(tmp_path: Path, more: list[str]) -> None:
    """By a front end of its own, too, which did not load the model."""
    one, two = _model(tmp_path / "one", 1), _model(tmp_path / "two", 2)
    cache = f"--cache-dir={tmp_path / 'cache'}"
    with serve(str(two), tmp_path, [*OPTIONS, cache]) as server:
        expected = _answer(server)
    # pytest's own folders are too long for a socket's path
    with tempfile.TemporaryDirectory() as folder:
        address = f"--admin-address={folder}/admin"
        with serve(str(one), tmp_path, [*OPTIONS, cache, address, *more]) as server:
            before = _answer(server)
            transport = httpx.HTTPTransport(uds=f"{folder}/admin")
            with httpx.Client(transport=transport, base_url="http://admin", timeout=60) as admin:
                response = admin.post("/update_weights", json={"path": str(two)})
            assert response.status_code == 200, response.text
            assert before != _answer(server) == expected
            assert server.stop() == 0
    quantized = list((tmp_path / "cache/quantized").iterdir())
    assert len(quantized) == 2
