"""Real servers of a model without native support, and of models without weights."""

from __future__ import annotations

from pathlib import Path

import httpx
import torch

from tests.e2e.server_process import NAME, serve
from tests.families.fallback import make
from tests.families.families import make as make_native
from tests.families.word_tokenizer import save_tokenizer

_PROMPT, _TOKENS = "w8 w6 w7 w200 w31", 12


def _complete(url: str) -> str:
    body = {"model": NAME, "prompt": _PROMPT, "max_tokens": _TOKENS, "temperature": 0}
    response = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


def test_a_model_without_native_support(tmp_path: Path) -> None:
    model = make("moshi", tmp_path)
    tokenizer = save_tokenizer(tmp_path)
    ids, answer = tokenizer.encode(_PROMPT).ids, list[int]()
    with torch.no_grad():
        while len(answer) < _TOKENS and model.config.eos_token_id not in answer:
            logits = model(torch.tensor([ids + answer])).logits[0, -1]
            answer.append(int(logits.argmax()))
    expected = tokenizer.decode(answer)
    with serve(str(tmp_path), tmp_path, ["--max-num-seqs", "4"]) as server:
        assert _complete(server.base_url).split() == expected.split()
        log = server.log.read_text()
    assert log.count("is run by the fallback to transformers") == 1


def test_a_model_without_weights(tmp_path: Path) -> None:
    """Front ends in processes of their own read its configuration, too."""
    make_native("llama", tmp_path)
    save_tokenizer(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    options = ["--load-format", "dummy", "--cache-dir", str(tmp_path / "cache")]
    texts: list[str] = []
    for more in ([], ["--isolate-engine"]):
        with serve(str(tmp_path), tmp_path, [*options, *more]) as server:
            texts.append(_complete(server.base_url))
    assert texts[0] == texts[1]
