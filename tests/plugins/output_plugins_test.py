"""Token matchers and logits processors of an installed package, which requests name: offline, and
over HTTP with the engine in the server's process and in another one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill import LLM
from pagemill.engine.outputs import EngineError

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve
from tests.plugins.installed_package import install

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
ENTRIES = """\
[pagemill.token_matchers]
gone = alpaca_is_gone:Letters
letters = alpaca:Letters
most = alpaca:Most

[pagemill.logits_processors]
likes = alpaca:Likes
"""
MATCHERS = """\
import numpy as np


class Matcher:
    def __init__(self, allowed, ends, most):
        self.allowed, self.ends, self.most = allowed, ends, most
        self.tokens = []

    def fits(self):
        if self.most == 0:
            raise RuntimeError("no token\\nat all")
        has_ended = self.tokens and self.ends[self.tokens[-1]]
        return self.ends if has_ended or len(self.tokens) == self.most else self.allowed

    def fill_mask(self, mask):
        bits = np.packbits(self.fits(), bitorder="little")
        mask.view(np.uint8)[: bits.size] = bits
        mask.view(np.uint8)[bits.size :] = 0

    def accept(self, token_id):
        if not self.fits()[token_id]:
            return False
        self.tokens.append(token_id)
        return True

    def rollback(self, num_tokens):
        del self.tokens[len(self.tokens) - num_tokens :]

    def forced(self, most):
        return []


class Letters:
    '''Tokens that are written with some letters; it allows an end anywhere.'''

    opened = 0

    def __init__(self, vocabulary):
        type(self).opened += 1
        assert self.opened == 1, "opened twice"
        texts = vocabulary.tokenizer.token_bytes
        self.texts = [texts[token] for token in range(vocabulary.vocab_size)]
        self.ends = np.zeros(len(self.texts), bool)
        self.ends[list(vocabulary.eos_token_ids)] = True

    def factory(self, arguments):
        if not isinstance(arguments, dict) or not arguments.get("letters"):
            raise ValueError("say the `letters`")
        letters = set(arguments["letters"].encode())
        fits = np.array([bool(text) and letters.issuperset(text) for text in self.texts])
        return lambda: Matcher(fits | self.ends, self.ends, 10**6)


class Most(Letters):
    '''So many tokens at most; none is an error of its own.'''

    opened = 0

    def factory(self, most):
        everything = np.ones(len(self.texts), bool)
        return lambda: Matcher(everything, self.ends, int(most) if most else 0)


class Likes:
    '''Prefers a token, more the more of it there are; a negative one is an error of its own.'''

    def __init__(self, vocabulary):
        self.size = vocabulary.vocab_size

    def processor(self, token):
        if not isinstance(token, int) or token >= self.size:
            raise ValueError("say which token")

        def process(prompt, outputs, logits):
            if token < 0:
                raise RuntimeError("no token\\nat all")
            logits[token] += 100 * (1 + np.count_nonzero(outputs == token))

        return process
"""
ONLY_AB = {"letters": {"letters": "ab "}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder, ENTRIES, {"alpaca.py": MATCHERS})
    return folder


@pytest.fixture(scope="module", params=["", "--api-server-count=2"])
def server(
    request: pytest.FixtureRequest, site: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    options = ["--max-model-len=512", *([request.param] if request.param else [])]
    folder = tmp_path_factory.mktemp("server")
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    with serve(SMOLLM2, folder, options, environment={"PYTHONPATH": path}) as running:
        yield running


def complete(server: ServerProcess, status: int = 200, **fields: Any) -> Any:
    body = {"model": NAME, "prompt": "Once", "max_tokens": 12, "temperature": 0, **fields}
    answer = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()


def text(server: ServerProcess, **fields: Any) -> str:
    return complete(server, **fields)["choices"][0]["text"]


def test_requests_name_them(server: ServerProcess) -> None:
    free = text(server)
    assert not set(free) <= set("ab ")
    assert set(text(server, vllm_xargs=ONLY_AB, min_tokens=6)) <= set("ab ")
    several = complete(server, vllm_xargs=ONLY_AB, temperature=1, n=3, seed=1)["choices"]
    assert len(several) == 3 and all(set(each["text"]) <= set("ab ") for each in several)
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 6}
    answer = httpx.post(
        f"{server.base_url}/v1/chat/completions", json={**chat, "vllm_xargs": ONLY_AB}, timeout=60
    ).json()
    assert set(answer["choices"][0]["message"]["content"]) <= set("ab ")
    assert text(server) == free


def test_with_grammars_limits_and_each_other(server: ServerProcess) -> None:
    grammar = {"guided_regex": "[a-z]{8}", "temperature": 1, "seed": 3}
    assert re.fullmatch("[a-z]{8}", text(server, **grammar))
    assert re.fullmatch("[ab]{8}", text(server, **grammar, vllm_xargs=ONLY_AB))
    limited = text(server, **grammar, vllm_xargs=ONLY_AB, bad_words=["a"])
    assert re.fullmatch("[ab]{8}", limited)
    both = complete(server, vllm_xargs={**ONLY_AB, "most": 3}, temperature=1, seed=5)
    assert both["usage"]["completion_tokens"] <= 4
    assert set(both["choices"][0]["text"]) <= set("ab ")


def test_processors(server: ServerProcess) -> None:
    token = 28  # of SmolLM2: "A" or the like
    liked = {"vllm_xargs": {"likes": token}, "return_token_ids": True}
    assert complete(server, **liked)["choices"][0]["token_ids"] == [token] * 12
    drawn = complete(server, **liked, temperature=1, n=2, seed=1)["choices"]
    assert all(each["token_ids"] == [token] * 12 for each in drawn)
    # What a matcher excludes is excluded.
    both = {"vllm_xargs": {**liked["vllm_xargs"], **ONLY_AB}}
    assert set(text(server, **both)) <= set("ab ")


def test_beams(server: ServerProcess) -> None:
    beams: dict[str, Any] = {"use_beam_search": True, "n": 3}
    xargs = {**ONLY_AB, "most": 3}
    found = complete(server, vllm_xargs=xargs, **beams)
    assert all(set(each["text"]) <= set("ab ") for each in found["choices"])
    assert found["usage"]["completion_tokens"] <= 3 * 4
    liked = complete(server, vllm_xargs={"likes": 28}, **beams, return_token_ids=True)
    best = liked["choices"][0]
    assert best["token_ids"] == [28] * 12


def test_messages(server: ServerProcess) -> None:
    message = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 6}
    url = f"{server.base_url}/v1/messages"
    answer = httpx.post(url, json={**message, "vllm_xargs": ONLY_AB}, timeout=60).json()
    assert set(answer["content"][0]["text"]) <= set("ab ")
    refused = httpx.post(url, json={**message, "vllm_xargs": {"alpaca": 1}}, timeout=60)
    assert refused.status_code == 400 and "'alpaca'" in refused.json()["error"]["message"]


def test_refusals_name_them(server: ServerProcess) -> None:
    def refused(**xargs: Any) -> str:
        error = complete(server, 400, vllm_xargs=xargs)["error"]
        assert error["param"] == "vllm_xargs"
        return error["message"]

    unknown = refused(alpaca=1)
    assert "'alpaca'" in unknown and "gone, letters, most, likes" in unknown
    assert "'letters' refuses its arguments: say the `letters`" in refused(letters={})
    assert "'likes' refuses its arguments: say which token" in refused(likes="a")
    assert "at most 65536" in refused(letters={"letters": "a" * 2**16})
    assert "8" in refused(**dict.fromkeys("abcdefghi"))
    failed = complete(server, 500, vllm_xargs={"gone": 1})["error"]["message"]
    assert "'gone' failed" in failed and "alpaca_is_gone" in failed


def test_one_that_raises_ends_its_request_only(server: ServerProcess) -> None:
    def one(number: int) -> None:
        if number % 2:
            assert set(text(server, vllm_xargs=ONLY_AB)) <= set("ab ")
            return
        name, argument = ("most", 0) if number % 4 else ("likes", -1)
        message = complete(server, 500, vllm_xargs={name: argument})["error"]["message"]
        assert message == f"The plugin '{name}' failed: RuntimeError: no token at all."

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(8)))


def test_offline(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "alpaca", raising=False)
    monkeypatch.syspath_prepend(site)
    with LLM(SMOLLM2, max_model_len=256, max_num_seqs=2) as llm:
        for output in llm.generate(["Once", "Twice"], extra_args=ONLY_AB, max_tokens=8):
            assert set(output.choices[0].text) <= set("ab ")
        with pytest.raises(EngineError, match="say the `letters`"):
            llm.generate("Once", extra_args={"letters": 5}, max_tokens=8)
        with pytest.raises(EngineError, match="'letters' are not JSON"):
            llm.generate("Once", extra_args={"letters": {1}}, max_tokens=8)
        assert llm.generate("Once", extra_args={"most": 2}, max_tokens=8)[0].choices[0].text
