"""`POST /v1/systemone` with a real model: the probabilities are those of its logits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import ServerProcess, serve
from tests.families.word_tokenizer import save_tokenizer
from tests.parity.llama_checkpoint import write_llama

TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}w9"
LABELS = {"A": 17, "B": 99, "C": 31, "yes": 40, "no": 41, "0": 50, "1": 51, "2": 52}
ASKS = "Read the state below, and answer the question behind it by one label and nothing else."
QUESTIONS: dict[str, Any] = {
    "what": {"type": "choice", "criteria": {"w5": None, "w6": "w7", "w8": None}},
    "so": {"type": "noul", "instructions": "w20 w21"},
    "much": {"type": "score", "instructions": "w22", "criteria": ["w5", "w6", "w7"]},
}
TEXTS = {
    "what": "A. w5\nB. w6: w7\nC. w8\nAnswer with the letter of one of these.",
    "so": "w20 w21\nAnswer with yes or no.",
    "much": "w22\n0. w5\n1. w6\n2. w7\n"
    "Answer with the number of one of these, from the lowest to the highest.",
}


def _name_labels(path: Path) -> None:
    """Gives the labels tokens, in place of words."""
    file = path / "tokenizer.json"
    described = json.loads(file.read_text())
    vocab = described["model"]["vocab"]
    for label, token in LABELS.items():
        del vocab[f"w{token}"]
        vocab[label] = token
    file.write_text(json.dumps(described))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("model")
    write_llama(path, seed=1)
    save_tokenizer(path)
    _name_labels(path)
    (path / "template.jinja").write_text(TEMPLATE)
    options = [
        "--max-logprobs=-1",
        "--max-model-len=128",
        f"--chat-template={path / 'template.jinja'}",
    ]
    with serve(str(path), tmp_path_factory.mktemp("log"), options) as running:
        yield running


def _post(server: ServerProcess, route: str, **fields: Any) -> Any:
    response = httpx.post(f"{server.base_url}{route}", json=fields, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def _probabilities(server: ServerProcess, text: str) -> dict[int, float]:
    """Of every token behind a chat of `text`."""
    answer = _post(
        server,
        "/v1/chat/completions",
        messages=[{"role": "user", "content": text}],
        max_tokens=1,
        logprobs=True,
        top_logprobs=-1,
        return_tokens_as_token_ids=True,
    )
    (entry,) = answer["choices"][0]["logprobs"]["content"]
    tops = {each["token"]: each["logprob"] for each in entry["top_logprobs"]}
    return {int(name.removeprefix("token_id:")): math.exp(value) for name, value in tops.items()}


def test_answers_are_probabilities_of_labels(server: ServerProcess) -> None:
    found = _post(server, "/v1/systemone", state="w30 w200", questions=QUESTIONS)
    answers = found["answers"]
    for name, labels in (("what", "ABC"), ("so", ["yes", "no"]), ("much", "012")):
        every = _probabilities(server, f"{ASKS}\n\nState:\nw30 w200\n\n{TEXTS[name]}")
        assert len(every) > 200
        own = [every[LABELS[label]] for label in labels]
        among = [each / sum(own) for each in own]
        answer, diagnostics = answers[name], found["diagnostics"][name]
        assert list(answer["probabilities"].values()) == pytest.approx(among, rel=1e-4)
        assert diagnostics["label_mass"] == pytest.approx(sum(own), rel=1e-4)
        assert answer["confidence"] == pytest.approx(max(own), rel=1e-4)
        likeliest = max(every, key=lambda token: every[token])
        assert diagnostics["argmax_is_label"] == (likeliest in {LABELS[each] for each in labels})
        if name == "much":
            expected = among[1] + 2 * among[2]
            assert answer["score"] == pytest.approx(expected, rel=1e-4)
    best = max(answers["what"]["probabilities"], key=answers["what"]["probabilities"].get)
    assert answers["what"]["choice"] == best
    assert answers["so"]["noul"] == answers["so"]["probabilities"]["true"]
