"""A model without a tokenizer (`--skip-tokenizer-init`): token ids in, token ids out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill.config import ConfigError
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import SamplingParams
from pagemill.render.errors import RenderError

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.parity.llama_checkpoint import write_llama

PROMPT = [8, 6, 7, 200, 31]
GREEDY = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}
MESSAGES = [{"role": "user", "content": "Hi"}]
NO_TOKENIZER = "no tokenizer is loaded"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    write_llama(path, seed=1)
    assert not (path / "tokenizer.json").exists()
    return path


def _post(server: ServerProcess, route: str, status: int = 200, **fields: Any) -> Any:
    response = httpx.post(f"{server.base_url}{route}", json=fields, timeout=60)
    assert response.status_code == status, response.text
    return response.json()


@pytest.mark.parametrize("more", [[], ["--isolate-engine"]])
def test_a_server_takes_and_gives_token_ids(model: Path, tmp_path: Path, more: list[str]) -> None:
    with serve(str(model), tmp_path, ["--skip-tokenizer-init", *more]) as server:
        answer = _post(server, "/inference/v1/generate", token_ids=PROMPT, sampling_params=GREEDY)
        expected = answer["choices"][0]["token_ids"]
        assert len(expected) == 6
        answer = _post(
            server, "/v1/completions", prompt=PROMPT, return_token_ids=True, logprobs=1, **GREEDY
        )
        (choice,) = answer["choices"]
        assert choice["token_ids"] == expected and choice["prompt_token_ids"] == PROMPT
        assert choice["text"] == ""
        assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in expected]
        answer = _post(
            server, "/v1/completions", prompt=PROMPT, stop_token_ids=expected[2:3], **GREEDY
        )
        assert answer["choices"][0]["finish_reason"] == "stop"
        _post_text(server)


def _post_text(server: ServerProcess) -> None:
    """Every request that needs text is refused with a reason."""
    completion = {"prompt": PROMPT, "max_tokens": 1}
    schema = {"type": "json_object"}
    for route, fields, param in (
        ("/v1/completions", {"prompt": "Hi"}, None),
        ("/v1/completions", {"prompt": "Hi" * 5000}, None),
        ("/v1/completions", {**completion, "stop": ["x"]}, "stop"),
        ("/v1/completions", {**completion, "bad_words": ["x"]}, "bad_words"),
        ("/v1/completions", {**completion, "echo": True}, None),
        ("/v1/chat/completions", {"messages": MESSAGES}, None),
        ("/v1/responses", {"input": "Hi"}, None),
        ("/tokenize", {"prompt": "Hi"}, None),
        ("/detokenize", {"tokens": PROMPT}, None),
        (
            "/inference/v1/generate",
            {"token_ids": PROMPT, "sampling_params": {}, "output_mode": "text"},
            "output_mode",
        ),
    ):
        error = _post(server, route, 400, **fields)["error"]
        assert NO_TOKENIZER in error["message"].lower(), (route, error)
        assert error["param"] == param, (route, error)
    message = _post(server, "/v1/messages", 400, model=NAME, max_tokens=1, messages=MESSAGES)
    assert NO_TOKENIZER in message["error"]["message"].lower()
    refused = _post(server, "/v1/completions", 400, **completion, response_format=schema)
    assert NO_TOKENIZER in refused["error"]["message"]


def test_offline(model: Path) -> None:
    with LLM(str(model), skip_tokenizer_init=True, max_model_len=64) as llm:
        sampling = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
        (output,) = llm.generate(PROMPT, sampling)
        assert len(output.choices[0].token_ids) == 6 and output.choices[0].text == ""
        with pytest.raises(RenderError, match=NO_TOKENIZER):
            llm.generate("Hi")
        with pytest.raises(RenderError, match=NO_TOKENIZER):
            llm.chat(MESSAGES)
        with pytest.raises(EngineError, match="stop_token_ids"):
            llm.generate(PROMPT, stop=("x",))
    with pytest.raises(ConfigError, match="--chat-template is about text"):
        LLM(str(model), skip_tokenizer_init=True, chat_template="{{ messages }}")
    with pytest.raises(RenderError, match=r"tokenizer\.json"):
        LLM(str(model), max_model_len=64)
