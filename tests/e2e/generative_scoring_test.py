"""`POST /generative_scoring` with a real model: the probabilities are those of its logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import ServerProcess, serve
from tests.families.word_tokenizer import save_tokenizer
from tests.parity.llama_checkpoint import write_llama

QUERY, ITEMS, LABELS = [8, 6, 7], [[200, 31], [5]], [17, 3, 99]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("model")
    write_llama(path, seed=1)
    save_tokenizer(path)
    options = ["--max-logprobs=-1", "--max-model-len=64"]
    with serve(str(path), tmp_path_factory.mktemp("log"), options) as running:
        yield running


def _post(server: ServerProcess, route: str, status: int = 200, **fields: Any) -> Any:
    response = httpx.post(f"{server.base_url}{route}", json=fields, timeout=60)
    assert response.status_code == status, response.text
    return response.json()


def _scores(server: ServerProcess, **fields: Any) -> list[float]:
    body = {"query": QUERY, "items": ITEMS, "label_token_ids": LABELS, **fields}
    answer = _post(server, "/generative_scoring", **body)
    assert answer["object"] == "list" and answer["id"].startswith("generative-scoring-")
    assert [each["index"] for each in answer["data"]] == list(range(len(body["items"])))
    assert {each["object"] for each in answer["data"]} == {"score"}
    return [each["score"] for each in answer["data"]]


def _probabilities(server: ServerProcess, prompt: list[int]) -> dict[int, float]:
    """Of every token behind `prompt`."""
    answer = _post(
        server,
        "/v1/completions",
        prompt=prompt,
        max_tokens=1,
        logprobs=-1,
        return_tokens_as_token_ids=True,
    )
    (top,) = answer["choices"][0]["logprobs"]["top_logprobs"]
    return {int(name.removeprefix("token_id:")): math.exp(value) for name, value in top.items()}


@pytest.mark.parametrize("item_first", [False, True])
def test_scores_are_probabilities_of_the_first_label(
    server: ServerProcess, item_first: bool
) -> None:
    prompts = [item + QUERY if item_first else QUERY + item for item in ITEMS]
    found = [_probabilities(server, prompt) for prompt in prompts]
    among_all = _scores(server, apply_softmax=False, item_first=item_first)
    assert among_all == pytest.approx([each[LABELS[0]] for each in found], rel=1e-4)
    among_labels = _scores(server, item_first=item_first)
    expected = [each[LABELS[0]] / sum(each[label] for label in LABELS) for each in found]
    assert among_labels == pytest.approx(expected, rel=1e-4)


def test_texts_are_joined(server: ServerProcess) -> None:
    texts = _scores(server, query="w8 w6", items=[" w7", " w200 w31"])
    (first, second) = (
        _post(server, "/tokenize", prompt=f"w8 w6{item}")["tokens"] for item in (" w7", " w200 w31")
    )
    assert texts == pytest.approx(_scores(server, query=[], items=[first, second]), rel=1e-6)


def test_refusals(server: ServerProcess) -> None:
    body = {"query": QUERY, "items": ITEMS, "label_token_ids": LABELS}
    for fields, param in (
        ({"items": []}, "items"),
        ({"items": ["w7"]}, "items"),
        ({"items": [[2**31 - 1]]}, "items"),
        ({"query": [], "items": [[]]}, "items"),
        ({"items": [[5] * 64]}, "items"),
        ({"label_token_ids": []}, "label_token_ids"),
        ({"label_token_ids": [5, 5]}, "label_token_ids"),
        ({"label_token_ids": [2**31 - 1]}, "label_token_ids"),
        ({"label_token_ids": list(range(65))}, "label_token_ids"),
    ):
        refused = _post(server, "/generative_scoring", 400, **{**body, **fields})
        assert refused["error"]["param"] == param, (fields, refused)
