"""`prompt_embeds` over HTTP: rows of the model's table give the tokens of their ids."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from tests.e2e.server_process import ServerProcess, serve
from tests.parity.tiny_models import make

GREEDY = {"max_tokens": 6, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
IDS = np.random.default_rng(0).integers(3, 257, 50).tolist()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    make("llama", path, "f32", seed=1)
    return path


def _embedded(model: Path, ids: list[int]) -> torch.Tensor:
    return load_file(model / "model.safetensors")["model.embed_tokens.weight"][ids]


def _in_safetensors(rows: torch.Tensor) -> str:
    return base64.b64encode(save({"rows": rows})).decode()


def _by_torch(rows: torch.Tensor) -> str:
    file = io.BytesIO()
    torch.save(rows, file)
    return base64.b64encode(file.getvalue()).decode()


def _post(server: ServerProcess, route: str, status: int = 200, **fields: Any) -> Any:
    response = httpx.post(f"{server.base_url}{route}", json=fields, timeout=60)
    assert response.status_code == status, response.text
    return response.json()


def _tokens(server: ServerProcess, **fields: Any) -> list[list[int]]:
    answer = _post(server, "/v1/completions", **fields, **GREEDY)
    return [choice["token_ids"] for choice in answer["choices"]]


@pytest.mark.parametrize("more", [[], ["--isolate-engine"]])
def test_tokens(model: Path, tmp_path: Path, more: list[str]) -> None:
    options = ["--skip-tokenizer-init", "--enable-prompt-embeds", *more]
    with serve(str(model), tmp_path, options) as server:
        long, short = IDS, IDS[:3]
        expected = _tokens(server, prompt=[long, short])
        sent = [_in_safetensors(_embedded(model, long)), _by_torch(_embedded(model, short))]
        assert _tokens(server, prompt_embeds=sent) == expected
        assert _tokens(server, prompt_embeds=sent[1]) == expected[1:]
        # Those that are embeddings come first.
        assert _tokens(server, prompt=long, prompt_embeds=sent[1]) == expected[::-1]
        answer = _post(server, "/v1/completions", prompt_embeds=sent, **GREEDY)
        assert answer["usage"]["prompt_tokens"] == len(long) + len(short)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 48
        _post_what_is_refused(server, sent[0])


def _post_what_is_refused(server: ServerProcess, sent: str) -> None:
    for fields, param, words in (
        ({"prompt_embeds": []}, "prompt", "is required"),
        ({"prompt_embeds": _by_torch(torch.zeros(3, 5))}, "prompt_embeds", "takes [tokens, 96]"),
        ({"prompt_embeds": "%"}, "prompt_embeds", "not base64"),
        ({"prompt_embeds": sent, "echo": True}, "echo", "needs the tokens"),
        ({"prompt_embeds": sent, "prompt_logprobs": 1}, "prompt_logprobs", "needs the tokens"),
        ({"prompt_embeds": sent, "max_tokens": 10**6}, "max_tokens", "is too large"),
        (
            {"prompt_embeds": sent, "truncate_prompt_tokens": 8},
            "truncate_prompt_tokens",
            "not truncated",
        ),
    ):
        error = _post(server, "/v1/completions", 400, **fields)["error"]
        assert error["param"] == param and words in error["message"], error
    error = _post(server, "/v1/completions/render", 400, prompt_embeds=sent)["error"]
    assert error["param"] == "prompt_embeds"


def test_without_the_option(model: Path, tmp_path: Path) -> None:
    with serve(str(model), tmp_path, ["--skip-tokenizer-init"]) as server:
        sent = _by_torch(_embedded(model, IDS))
        error = _post(server, "/v1/completions", 400, prompt_embeds=sent)["error"]
        assert "--enable-prompt-embeds" in error["message"]
