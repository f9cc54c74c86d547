"""`/pooling`, `/classify`, `/score` and `/rerank`."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pagemill.engine.testing.fake_model import FakeOptions, pooled_row
from pagemill.inputs.scoring import activated
from pagemill.inputs.task import Activation, Pooled, Task
from pagemill.server import pipeline as pipelines
from pagemill.server import rendering
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.capacity import Capacity
from pagemill.server.protocol.score import MAX_DOCUMENTS
from pagemill.server.testing.fake_server import FakeServer, fake_server

SIZE = 5
Body = Callable[[FakeServer], Awaitable[None]]


def run(body: Body, task: Task, size: int = SIZE, **fields: Any) -> None:
    """`fields` are some of the model's `Pooled`."""
    labels = tuple(f"L{i}" for i in range(size)) if task.classifies else ()
    pooled = Pooled(**({"task": task, "width": size, "labels": labels} | fields))

    async def main() -> None:
        async with fake_server(FakeOptions(pooled_size=size, task=task)) as server:
            pipeline = server.state.models.resolve(None, ANONYMOUS).model
            pipeline.model = replace(pipeline.model, pooled=pooled)
            await body(server)

    asyncio.run(main())


async def post(server: FakeServer, path: str, status: int = 200, **fields: Any) -> Any:
    response = await server.client.post(path, json=fields)
    assert response.status_code == status, response.text
    return response.json()


async def refused(server: FakeServer, path: str, param: str, **fields: Any) -> str:
    error = (await post(server, path, 400, **fields))["error"]
    assert error["param"] == param, error
    return error["message"]


def row(task: Task, text: str, size: int = SIZE) -> np.ndarray:
    """What the fake model gives for a text, or for each of its tokens."""
    options = FakeOptions(pooled_size=size, task=task)
    if task.by_token:
        return np.array([pooled_row(options, [token]) for token in text.encode()])
    return pooled_row(options, list(text.encode()))


@pytest.mark.parametrize(
    ("activation", "logits", "scores"),
    [
        ("identity", [-3.0, 4.0], [-3.0, 4.0]),
        ("sigmoid", [0.0, 1000.0, -1000.0], [0.5, 1.0, 0.0]),
        ("softmax", [1000.0, 1000.0, -1000.0], [0.5, 0.5, 0.0]),
        ("softmax", [[0.0, 0.0], [np.log(3), 0.0]], [[0.5, 0.5], [0.75, 0.25]]),
    ],
)
def test_activations(activation: Activation, logits: Any, scores: Any) -> None:
    found = activated(np.array(logits, np.float32), activation)
    np.testing.assert_allclose(found, scores, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("activation", ["identity", "sigmoid", "softmax"])
def test_classes(activation: Activation) -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, "/classify", input=["ab", "c"])
        assert got["object"] == "list" and got["model"] == "fake"
        assert got["id"].startswith("classify-")
        assert got["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
        for index, text in enumerate(("ab", "c")):
            logits, found = row(Task.CLASSIFY, text), got["data"][index]
            probs = activated(logits, activation)
            np.testing.assert_allclose(found["probs"], probs, rtol=1e-6)
            assert (found["index"], found["num_classes"]) == (index, SIZE)
            assert found["label"] == f"L{int(logits.argmax())}"
        plain = await post(server, "/classify", input="ab", use_activation=False)
        np.testing.assert_allclose(plain["data"][0]["probs"], row(Task.CLASSIFY, "ab"), rtol=1e-6)
        chat = await post(server, "/classify", messages=[{"role": "user", "content": "b"}])
        assert chat["usage"]["prompt_tokens"] == len("user:b")
        await refused(server, "/classify", "input")
        await refused(server, "/classify", "input", input=[])
        await refused(server, "/classify", "input", input="a" * 300)
        await refused(server, "/classify", "padding", input="a", padding="max_length")

    run(body, Task.CLASSIFY, activation=activation)


def test_rows_of_tokens_in_bytes() -> None:
    async def body(server: FakeServer) -> None:
        fields = {"input": ["ab", "c"], "encoding_format": "bytes"}
        response = await server.client.post("/pooling", json=fields)
        items = json.loads(response.headers["metadata"])["data"]
        assert [item["shape"] for item in items] == [[2, SIZE], [1, SIZE]]
        for text, item in zip(("ab", "c"), items, strict=True):
            found = np.frombuffer(response.content[item["start"] : item["end"]], "<f4")
            assert np.array_equal(found.reshape(item["shape"]), row(Task.TOKEN_EMBED, text))

    run(body, Task.TOKEN_EMBED)


def test_rows_of_tokens() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, "/pooling", input=["ab", "c"])
        assert [each["index"] for each in got["data"]] == [0, 1]
        for text, each in zip(("ab", "c"), got["data"], strict=True):
            np.testing.assert_allclose(each["data"], row(Task.TOKEN_EMBED, text), rtol=1e-6)
        coded = await post(server, "/pooling", input="ab", encoding_format="base64")
        numbers = np.frombuffer(base64.b64decode(coded["data"][0]["data"]), np.float32)
        assert np.array_equal(numbers.reshape(2, SIZE), row(Task.TOKEN_EMBED, "ab"))
        short = await post(server, "/pooling", input="ab", dimensions=2)
        np.testing.assert_allclose(
            short["data"][0]["data"], row(Task.TOKEN_EMBED, "ab")[:, :2], rtol=1e-6
        )
        await post(server, "/pooling", input="ab", task="token_embed")
        await refused(server, "/pooling", "task", input="ab", task="embed")
        await refused(server, "/pooling", "task", input="ab", task="score")
        await refused(server, "/pooling", "use_activation", input="ab", use_activation=False)
        await refused(server, "/pooling", "data", data={}, task="plugin")
        await post(server, "/v1/embeddings", 404, input="a")
        await post(server, "/classify", 404, input="a")

    run(body, Task.TOKEN_EMBED, sizes=())


def test_classes_of_tokens() -> None:
    async def body(server: FakeServer) -> None:
        logits = row(Task.TOKEN_CLASSIFY, "abc")
        got = await post(server, "/pooling", input="abc")
        expected = activated(logits, "softmax")
        np.testing.assert_allclose(got["data"][0]["data"], expected, rtol=1e-5)
        plain = await post(server, "/pooling", input="abc", use_activation=False)
        np.testing.assert_allclose(plain["data"][0]["data"], logits, rtol=1e-6)
        await refused(server, "/pooling", "dimensions", input="a", dimensions=2)
        await post(server, "/score", 404, queries="a", documents="b")

    run(body, Task.TOKEN_CLASSIFY, activation="softmax")


def test_rows_of_steps() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, "/pooling", input=["abcb", "a"], use_activation=False)
        steps = row(Task.TOKEN_CLASSIFY, "abcb")[[1, 3]]
        np.testing.assert_allclose(got["data"][0]["data"], steps, rtol=1e-6)
        assert got["data"][1]["data"] == []

    run(body, Task.TOKEN_CLASSIFY, step_tag=ord("b"))


def test_rows_of_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "MAX_POOLED_NUMBERS", 4 * SIZE)

    async def body(server: FakeServer) -> None:
        await post(server, "/pooling", input=["abc", "d"])
        message = await refused(server, "/pooling", "input", input=["abc", "de"])
        assert "5 tokens" in message and "those of 4" in message
        # Documents are compared as they come, in portions that are within the bound.
        scored = await post(server, "/score", queries="ab", documents=["abc", "de", "fghij", "k"])
        query = row(Task.TOKEN_EMBED, "ab")
        for text, each in zip(("abc", "de", "fghij", "k"), scored["data"], strict=True):
            products = query @ row(Task.TOKEN_EMBED, text).T
            assert each["score"] == pytest.approx(float(products.max(1).sum()), rel=1e-5)

    run(body, Task.TOKEN_EMBED)


def test_rows_of_all_requests_are_bounded() -> None:
    async def body(server: FakeServer) -> None:
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        numbers = SIZE * 256
        pipeline._row_room = Capacity(2 * numbers)  # pyright: ignore[reportPrivateUsage]
        server.engine.paused = True
        tasks = [asyncio.create_task(post(server, "/pooling", input="a" * 256)) for _ in range(5)]
        async with asyncio.timeout(60):
            while server.engine.stats().num_running != 2:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert server.engine.stats().num_running + server.engine.stats().num_waiting == 2
        server.engine.paused = False
        assert [len((await task)["data"][0]["data"]) for task in tasks] == [256] * 5

    run(body, Task.TOKEN_EMBED)


@pytest.mark.parametrize(
    ("queries", "documents"),
    [("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2")],
)
def test_a_cross_encoder_reads_pairs(queries: str, documents: str) -> None:
    async def body(server: FakeServer) -> None:
        async def scores(first: Any, second: Any, **fields: Any) -> list[float]:
            got = await post(server, "/score", **{queries: first, documents: second}, **fields)
            assert [each["index"] for each in got["data"]] == list(range(len(got["data"])))
            return [each["score"] for each in got["data"]]

        def expected(*texts: str) -> Any:
            logits = np.concatenate([row(Task.CLASSIFY, text, 1) for text in texts])
            return pytest.approx(activated(logits, "sigmoid").tolist(), rel=1e-6)

        assert await scores("ab", "c") == expected("ab c")
        assert await scores("ab", ["c", "d"]) == expected("ab c", "ab d")
        assert await scores(["ab", "e"], ["c", "d"]) == expected("ab c", "e d")
        (logit,) = await scores("ab", "c", use_activation=False)
        assert logit == pytest.approx(float(row(Task.CLASSIFY, "ab c", 1)[0]), rel=1e-6)
        assert await scores("ab", "c" * 400, truncate_prompt_tokens=4) == expected("ab c")
        limits = {"max_tokens_per_query": 2, "max_tokens_per_doc": 1}
        assert await scores("abxyz", "cxyz", **limits) == expected("ab c")
        await refused(server, "/score", queries, **{queries: ["a", "b"], documents: ["c"] * 3})
        await refused(server, "/score", documents, **{queries: "a", documents: "b" * 300})
        await refused(server, "/score", documents, **{queries: "a", documents: []})
        many = ["b"] * (MAX_DOCUMENTS + 1)
        await refused(server, "/score", documents, **{queries: "a", documents: many})
        await refused(server, "/score", queries, **{queries: "a"})
        cut = {"truncate_prompt_tokens": 2, "truncation_side": "left"}
        await refused(server, "/score", "truncation_side", **{queries: "a", documents: "bc"}, **cut)

    run(body, Task.CLASSIFY, 1, activation="sigmoid")


def test_pairs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "MAX_PAIR_CHARS", 20)

    async def body(server: FakeServer) -> None:
        await post(server, "/score", queries="a" * 9, documents=["b", "c"])
        message = await refused(server, "/score", "items", queries="a" * 9, items=["b", "c", "d"])
        assert "30 characters in 3 pairs" in message

    run(body, Task.CLASSIFY, 1)


def test_texts_under_several_names_are_refused() -> None:
    async def body(server: FakeServer) -> None:
        await refused(server, "/score", "queries", queries="a", documents="b", items="c")
        await refused(server, "/score", "queries", queries="a", text_2="b")
        await refused(server, "/score", "text_2", text_2="b")
        await refused(server, "/score", "queries")

    run(body, Task.EMBED)


def test_a_classifier_of_several_classes_does_not_score() -> None:
    async def body(server: FakeServer) -> None:
        message = await refused(server, "/score", "model", queries="a", documents="b")
        assert "5 classes" in message and "/classify" in message

    run(body, Task.CLASSIFY)


def test_embeddings_are_compared() -> None:
    async def body(server: FakeServer) -> None:
        got = await post(server, "/v1/score", queries="ab", documents=["ab", "c"])
        a, b = row(Task.EMBED, "ab"), row(Task.EMBED, "c")
        cosine = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        found = [each["score"] for each in got["data"]]
        assert found == pytest.approx([1.0, cosine], rel=1e-6)
        assert got["usage"]["prompt_tokens"] == 5
        limits = {"max_tokens_per_query": 2, "max_tokens_per_doc": 1}
        short = await post(server, "/score", queries="ab", documents=["a", "c"])
        cut = await post(server, "/score", queries="abx", documents=["ab", "cx"], **limits)
        assert cut["data"] == short["data"]
        cut = await post(
            server, "/score", queries="ab", documents=["a", "c" * 300], truncate_prompt_tokens=2
        )
        assert cut["usage"]["prompt_tokens"] == 5
        await refused(server, "/score", "queries", queries="a" * 300, documents="b")

    run(body, Task.EMBED)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_are_sorted(path: str) -> None:
    async def body(server: FakeServer) -> None:
        documents = ["b", {"text": "c"}, "d", "e"]
        got = await post(server, path, query="a", documents=documents)
        logits = [float(row(Task.CLASSIFY, f"a {text}", 1)[0]) for text in "bcde"]
        order = sorted(range(4), key=lambda index: -logits[index])
        assert [each["index"] for each in got["results"]] == order
        assert [each["document"]["text"] for each in got["results"]] == ["bcde"[i] for i in order]
        for each in got["results"]:
            expected = activated(np.array(logits[each["index"]]), "sigmoid")
            assert each["relevance_score"] == pytest.approx(float(expected), rel=1e-6)
        assert got["usage"]["total_tokens"] == 12
        best = await post(
            server, path, query="a", documents=documents, top_n=2, return_documents=False
        )
        assert [each["index"] for each in best["results"]] == order[:2]
        assert all("document" not in each for each in best["results"])
        await refused(server, path, "query", documents=documents)
        await refused(server, path, "documents", query="a")
        await refused(server, path, "documents", query="a", documents=[])
        await refused(server, path, "documents", query="a", documents=[5])
        await refused(server, path, "top_n", query="a", documents=documents, top_n=-1)
        await refused(
            server, path, "max_tokens_per_doc", query="a", documents=["b"], max_tokens_per_doc=-1
        )
        await refused(server, path, "instruction", query="a", documents=["b"], instruction="c")

    run(body, Task.CLASSIFY, 1, activation="sigmoid")


def test_a_template_for_pairs() -> None:
    async def body(server: FakeServer) -> None:
        renderer = server.renderer
        renderer.chat_template = "{{ messages | selectattr('role', 'eq', 'query') }} 'document'"
        got = await post(server, "/score", queries="ab", documents=["cde"], instruction="find")
        (message, query, document) = renderer.rendered[-1].messages
        assert (message["role"], message["content"]) == ("system", "find")
        assert (query["role"], query["content"]) == ("query", "ab")
        assert (document["role"], document["content"]) == ("document", "cde")
        text = "system:find\nquery:ab\ndocument:cde\nassistant:"
        logit = row(Task.CLASSIFY, text, 1)[0]
        assert got["data"][0]["score"] == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-6)
        assert got["usage"]["prompt_tokens"] == len(text)
        await post(server, "/rerank", query="abc", documents=["defg"], max_tokens_per_doc=2)
        assert [each["content"] for each in renderer.rendered[-1].messages] == ["abc", "de"]
        cut = {"queries": "a", "documents": "b", "truncate_prompt_tokens": 5}
        await refused(server, "/score", "truncate_prompt_tokens", **cut)
        await refused(server, "/score", "instruction", queries="a", documents="b", instruction=5)

    run(body, Task.CLASSIFY, 1, activation="sigmoid")


def test_invocations_go_where_the_model_serves_them() -> None:
    async def body(server: FakeServer) -> None:
        for fields, kind in (
            ({"input": "a"}, "classify-"),
            ({"messages": [{"role": "user", "content": "b"}]}, "classify-"),
            ({"query": "a", "documents": ["b"]}, "rerank-"),
            ({"text_1": "a", "text_2": "b"}, "score-"),
        ):
            assert (await post(server, "/invocations", **fields))["id"].startswith(kind)
        await post(server, "/invocations", 404, prompt="a")
        await post(server, "/invocations", 400)

    run(body, Task.CLASSIFY, 1)
