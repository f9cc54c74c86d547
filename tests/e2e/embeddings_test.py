"""`/v1/embeddings` with a real model, by the `openai` client."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import numpy as np
import openai
import pytest

from tests.e2e.server_process import MINILM_REASON, NAME, minilm_directory, serve

pytestmark = pytest.mark.skipif(not minilm_directory(), reason=MINILM_REASON)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    with serve(minilm_directory(), tmp_path_factory.mktemp("server")) as server:
        yield openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)
        server.wait_until_idle()


def vectors(client: openai.OpenAI, texts: list[str], encoding: str) -> np.ndarray:
    got = client.embeddings.create(model=NAME, input=texts, encoding_format=encoding)
    assert [item.index for item in got.data] == list(range(len(texts)))
    if encoding == "base64":  # the client decodes only the encoding that it chose itself
        raw = [base64.b64decode(str(item.embedding)) for item in got.data]
        return np.array([np.frombuffer(data, "<f4") for data in raw])
    return np.array([item.embedding for item in got.data], dtype=np.float32)


def test_meaning(client: openai.OpenAI) -> None:
    texts = ["someone is eating food", "a man eats bread", "the stock market fell today"]
    found = vectors(client, texts, "float")
    assert found.shape == (3, 384)
    # The model's last layer normalizes; float32 rounding only.
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert found[0] @ found[1] > 0.5 > 0.2 > found[0] @ found[2]


def test_encodings_and_batches_agree(client: openai.OpenAI) -> None:
    texts = [f"sentence number {i} " + "and more " * (i % 17) for i in range(100)]
    together = vectors(client, texts, "float")
    assert np.array_equal(together, vectors(client, texts, "base64"))
    for index in (0, 41, 99):
        alone = vectors(client, [texts[index]], "float")[0]
        assert float(alone @ together[index]) > 0.9999


def test_too_long(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.embeddings.create(model=NAME, input="word " * 2000)
    got = client.embeddings.create(
        model=NAME, input="word " * 2000, extra_body={"truncate_prompt_tokens": -1}
    )
    assert len(got.data) == 1


def test_it_does_not_generate(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="makes embeddings"):
        client.completions.create(model=NAME, prompt="x")
