"""Classifiers, scores and vectors of tokens equal those of `transformers`, from texts to numbers:
of real servers, and offline."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.inputs.task import Task
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from tests.e2e.server_process import serve
from tests.families.encoders import make
from tests.families.heads import bge_m3, pylate, qwen3_reranker, splade
from tests.families.word_tokenizer import save_tokenizer

# Of scores and probabilities, by f32 on both sides, and by activations of 1 in 10 digits.
TOLERANCE = 2e-4
QUERY = "w12 w13 w14 w60"
# Without w5: `transformers` takes the id of padding for padding.
DOCUMENTS = ["w8 w6 w7", "w100", "w12 w13 w14 w60 w15 w16", "w9 " * 40, "w200 w201"]


@torch.no_grad()
def reference(
    model: PreTrainedModel, tokenizer: Tokenizer, first: str, second: str | None = None
) -> np.ndarray:
    """The reference's numbers of a text, or of two."""
    encoding = tokenizer.encode(first, second)
    inputs = {"input_ids": torch.tensor([encoding.ids])}
    if model.config.model_type == "bert":
        inputs["token_type_ids"] = torch.tensor([encoding.type_ids])
    outputs = model(**inputs)
    rows = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    return rows[0].numpy()


@dataclass(frozen=True)
class Served:
    url: str
    model: PreTrainedModel
    tokenizer: Tokenizer

    def post(self, path: str, **fields: Any) -> Any:
        response = httpx.post(f"{self.url}{path}", json=fields, timeout=60)
        assert response.status_code == 200, response.text
        return response.json()

    def rows(self, first: str, second: str | None = None) -> np.ndarray:
        return reference(self.model, self.tokenizer, first, second)


@pytest.fixture(name="served_at", scope="module")
def _served_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    with contextlib.ExitStack() as stack:

        def start(path: Path, model: PreTrainedModel, *options: str) -> Served:
            tokenizer, flags = save_tokenizer(path), ["--activation-dtype=f32", *options]
            server = stack.enter_context(serve(str(path), tmp_path_factory.mktemp("log"), flags))
            return Served(server.base_url, model, tokenizer)

        yield start


@pytest.fixture(name="served", scope="module")
def _served(
    served_at: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Served]:
    def start(name: str, task: Task, labels: int, *options: str) -> Served:
        path = tmp_path_factory.mktemp(f"{name}-{task}")
        return served_at(path, make(name, task, path, labels=labels), *options)

    return start


def test_a_cross_encoder(served: Callable[..., Served]) -> None:
    server = served("bert", Task.CLASSIFY, 1)
    logits = np.array([server.rows(QUERY, document)[0] for document in DOCUMENTS])
    assert np.ptp(logits) > 100 * TOLERANCE
    expected = 1 / (1 + np.exp(-logits))
    got = server.post("/v1/score", queries=QUERY, documents=DOCUMENTS)
    scores = np.array([each["score"] for each in got["data"]])
    np.testing.assert_allclose(scores, expected, rtol=0, atol=TOLERANCE)
    ranked = server.post("/v2/rerank", query=QUERY, documents=DOCUMENTS, use_activation=False)
    order = [each["index"] for each in ranked["results"]]
    assert order == np.argsort(-logits).tolist()
    found = np.array([each["relevance_score"] for each in ranked["results"]])
    np.testing.assert_allclose(found, logits[order], rtol=0, atol=TOLERANCE)
    # What is cut is the end of the document: [SEP] stays.
    cut = server.post("/score", queries=QUERY, documents="w9 " * 999, truncate_prompt_tokens=20)
    kept = 20 - len(QUERY.split()) - 3
    expected = 1 / (1 + np.exp(-server.rows(QUERY, "w9 " * kept)[0]))
    assert abs(cut["data"][0]["score"] - expected) <= TOLERANCE
    cut = server.post("/score", queries=QUERY, documents="w9 " * 99, max_tokens_per_doc=kept)
    assert abs(cut["data"][0]["score"] - expected) <= TOLERANCE
    # A text alone has one type.
    alone = server.post("/classify", input=DOCUMENTS[0], use_activation=False)
    np.testing.assert_allclose(
        alone["data"][0]["probs"], server.rows(DOCUMENTS[0]), rtol=0, atol=TOLERANCE
    )


def test_a_classifier_of_a_decoder(served: Callable[..., Served]) -> None:
    server = served("qwen3", Task.CLASSIFY, 3)
    got = server.post("/classify", input=DOCUMENTS)
    for document, each in zip(DOCUMENTS, got["data"], strict=True):
        logits = server.rows(document)
        powers = np.exp(logits - logits.max())
        np.testing.assert_allclose(each["probs"], powers / powers.sum(), rtol=0, atol=TOLERANCE)
        assert each["label"] == f"LABEL_{int(logits.argmax())}"


def test_classes_of_tokens(served: Callable[..., Served]) -> None:
    server = served("xlm_roberta", Task.TOKEN_CLASSIFY, 3)
    got = server.post("/pooling", input=DOCUMENTS, use_activation=False)
    for document, each in zip(DOCUMENTS, got["data"], strict=True):
        np.testing.assert_allclose(each["data"], server.rows(document), rtol=0, atol=TOLERANCE)


def test_vectors_of_tokens(served: Callable[..., Served]) -> None:
    server = served("modernbert", Task.TOKEN_EMBED, 1, "--task=token_embed")

    def vectors(text: str) -> np.ndarray:
        rows = server.rows(text)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    got = server.post("/pooling", input=DOCUMENTS)
    for document, each in zip(DOCUMENTS, got["data"], strict=True):
        np.testing.assert_allclose(each["data"], vectors(document), rtol=0, atol=TOLERANCE)
    scored = server.post("/score", queries=QUERY, documents=DOCUMENTS)
    query = vectors(QUERY)
    for document, each in zip(DOCUMENTS, scored["data"], strict=True):
        expected = float((query @ vectors(document).T).max(1).sum())
        assert abs(each["score"] - expected) <= TOLERANCE * len(query)


def test_sparse_vectors(
    served_at: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SPLADE, as sentence-transformers saves it."""
    path = tmp_path_factory.mktemp("splade")
    server = served_at(path, splade(path).model)

    def vector(text: str) -> np.ndarray:
        return np.log1p(np.maximum(server.rows(text), 0)).max(0)

    got = server.post("/v1/embeddings", input=DOCUMENTS, encoding_format="sparse")
    whole = server.post("/v1/embeddings", input=DOCUMENTS)
    for document, each, all_of_it in zip(DOCUMENTS, got["data"], whole["data"], strict=True):
        expected = vector(document)
        found, values = np.zeros_like(expected), each["embedding"]
        found[values["indices"]] = values["values"]
        assert 0 < len(values["indices"]) < len(expected) and min(values["values"]) > 0
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(all_of_it["embedding"], expected, rtol=0, atol=TOLERANCE)
    scored = server.post("/score", queries=QUERY, documents=DOCUMENTS)
    products = [float(vector(QUERY) @ vector(document)) for document in DOCUMENTS]
    scores = [each["score"] for each in scored["data"]]
    np.testing.assert_allclose(scores, products, rtol=1e-3)


def test_the_other_heads_of_bge_m3(
    served_at: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Weights of tokens, and vectors of all but the first, by layers in files of torch."""
    path = tmp_path_factory.mktemp("bge_m3")
    headed = bge_m3(path, Task.TOKEN_CLASSIFY)
    server = served_at(path, headed.model, "--task=token_classify")
    got = server.post("/pooling", input=DOCUMENTS)
    for document, each in zip(DOCUMENTS, got["data"], strict=True):
        expected = headed.expected(server.tokenizer.encode(document).ids)
        np.testing.assert_allclose(each["data"], expected, rtol=0, atol=TOLERANCE)
    path = tmp_path_factory.mktemp("bge_m3")
    headed = bge_m3(path, Task.TOKEN_EMBED)
    server = served_at(path, headed.model, "--task=token_embed")

    def vectors(text: str) -> np.ndarray:
        return headed.expected(server.tokenizer.encode(text).ids).numpy()

    scored = server.post("/score", queries=QUERY, documents=DOCUMENTS)
    for document, each in zip(DOCUMENTS, scored["data"], strict=True):
        expected = float((vectors(QUERY) @ vectors(document).T).max(1).sum())
        assert abs(each["score"] - expected) <= TOLERANCE * len(QUERY.split())


@pytest.mark.parametrize("attends", [True, False])
def test_late_interaction_as_pylate_reads_texts(
    served_at: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory, attends: bool
) -> None:
    """Prefixes, punctuation that is not compared, and queries filled with masks."""
    path = tmp_path_factory.mktemp("pylate")
    headed = pylate(path)
    config = {"query_prefix": "w70", "document_prefix": "w71", "skiplist_words": ["w9", "w6"]}
    config |= {"query_length": 12, "attend_to_expansion_tokens": attends}
    (path / "config_sentence_transformers.json").write_text(json.dumps(config))
    (path / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": "w72"}}))
    server = served_at(path, headed.model)

    def ids(text: str, prefix: int) -> list[int]:
        first, *others = server.tokenizer.encode(text).ids
        return [first, prefix, *others]

    masks = [72] * (12 - len(QUERY.split()) - 3) if attends else []
    query = headed.expected(ids(QUERY, 70) + masks).numpy()
    expected: list[float] = []
    for document in DOCUMENTS:
        read = ids(document, 71)
        rows = headed.expected(read).numpy()[~np.isin(read, [9, 6])]
        expected.append(float((query @ rows.T).max(1).sum()))
    scored = server.post("/score", queries=QUERY, documents=DOCUMENTS)
    found = [each["score"] for each in scored["data"]]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * len(query))
    if attends:
        with LLM(str(path), activation_dtype="f32") as llm:
            offline = llm.score(QUERY, DOCUMENTS)
        np.testing.assert_allclose(offline, expected, rtol=0, atol=TOLERANCE * len(query))


RERANKER_TEMPLATE = (
    "{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first"
    " | default('w20') }} {% for message in messages if message.role in ['query', 'document'] %}"
    "{{ message.content }} w21 {% endfor %}w22"
)


def test_a_reranker_that_says_yes(
    served_at: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A language model, as Qwen3-Reranker is published: with a template of the operator."""
    path = tmp_path_factory.mktemp("reranker")
    headed = qwen3_reranker(path, (40, 9))
    file = path / "score.jinja"
    file.write_text(RERANKER_TEMPLATE)
    server = served_at(path, headed.model, f"--chat-template={file}")

    def expected(document: str, instruction: str) -> float:
        text = f"{instruction} {QUERY} w21 {document} w21 w22"
        ids = server.tokenizer.encode(text, add_special_tokens=False).ids
        return float(headed.expected(ids)[0])

    for fields, instruction in (({}, "w20"), ({"instruction": "w30 w31"}, "w30 w31")):
        got = server.post("/score", queries=QUERY, documents=DOCUMENTS, **fields)
        scores = [each["score"] for each in got["data"]]
        wanted = [expected(document, instruction) for document in DOCUMENTS]
        np.testing.assert_allclose(scores, wanted, rtol=0, atol=TOLERANCE)
        assert np.ptp(wanted) > 100 * TOLERANCE
    ranked = server.post("/rerank", query=QUERY, documents=DOCUMENTS, max_tokens_per_doc=1)
    firsts = [expected(document.split()[0], "w20") for document in DOCUMENTS]
    found = {each["index"]: each["relevance_score"] for each in ranked["results"]}
    np.testing.assert_allclose([found[i] for i in range(len(DOCUMENTS))], firsts, atol=TOLERANCE)
    with LLM(str(path), activation_dtype="f32", chat_template=str(file)) as llm:
        offline = llm.score(QUERY, DOCUMENTS, instruction="w30 w31")
        np.testing.assert_allclose(offline, wanted, rtol=0, atol=TOLERANCE)


def test_offline(tmp_path: Path) -> None:
    model, tokenizer = make("bert", Task.CLASSIFY, tmp_path, labels=1), save_tokenizer(tmp_path)
    logits = [reference(model, tokenizer, QUERY, document)[0] for document in DOCUMENTS]
    with LLM(str(tmp_path), activation_dtype="f32") as llm:
        scores = llm.score(QUERY, DOCUMENTS)
        np.testing.assert_allclose(scores, 1 / (1 + np.exp(-np.array(logits))), atol=TOLERANCE)
        assert llm.labels == ("LABEL_0",)
        (alone,) = llm.classify(DOCUMENTS[0])
        expected = 1 / (1 + np.exp(-reference(model, tokenizer, DOCUMENTS[0])))
        np.testing.assert_allclose(alone, expected, atol=TOLERANCE)
        with pytest.raises(EngineError, match="loaded for classify; this needs task=embed"):
            llm.embed("w9")
    with LLM(str(tmp_path), activation_dtype="f32", task="token_embed") as llm:
        rows = llm.encode(DOCUMENTS)
        assert [row.shape for row in rows] == [
            (len(tokenizer.encode(document).ids), 96) for document in DOCUMENTS
        ]
        (query,) = llm.encode(QUERY)
        largest = [float((query @ row.T).max(1).sum()) for row in rows]
        np.testing.assert_allclose(llm.score(QUERY, DOCUMENTS), largest, rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "modernbert", "nomic_bert"])
def test_ranks(name: str, tmp_path: Path) -> None:
    """Two ranks give what one does, except for the rounding of another summation order."""
    make(name, Task.CLASSIFY, tmp_path)
    save_tokenizer(tmp_path)
    found: list[np.ndarray] = []
    for ranks in (1, 2):
        options = {"activation_dtype": "f32", "tensor_parallel_size": ranks}
        with LLM(str(tmp_path), kv_cache_memory_bytes="16MiB", **options) as llm:
            found.append(llm.classify(DOCUMENTS))
            assert len(llm.worker_pids) == ranks - 1
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=TOLERANCE)
