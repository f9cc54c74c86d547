"""Models that pool texts with images: vectors, answers and vectors of tokens are those of
`transformers`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.inputs.task import Task
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.media.media_model import MediaTestModel, encoded, text
from tests.media.pooling_models import (
    CLIP_PLACEHOLDER,
    PIXELS,
    PLACEHOLDER,
    WIDTH,
    clip,
    colmodernvbert,
    colpali,
    colqwen2,
    qwen_vl,
)
from tests.media.qwen_vl_models import MAKERS, image, make_image_model

# Both sides compute in f32; vectors have the length 1.
TOLERANCE = 2e-5
IMAGE = [PLACEHOLDER]
SQUARE, WIDE = image(1, 6, 6), image(2, 4, 10)
PROMPTS = [
    text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
    text(4, 30),
    IMAGE,
]
IMAGES: list[list[Any]] = [[SQUARE, WIDE], [], [SQUARE]]


def expanded(prompt: Sequence[int], counts: Sequence[int]) -> list[int]:
    """The prompt with as many placeholders for each image as it has tokens."""
    rest = iter(counts)
    return [
        token
        for given in prompt
        for token in ([given] * next(rest) if given == PLACEHOLDER else [given])
    ]


def patch_tokens(images: Sequence[Any]) -> list[int]:
    """How many tokens each image of patches has."""
    return [len(patches) // 4 for patches, _ in images]


def expected(model: MediaTestModel, prompt: Sequence[int], images: Sequence[Any]) -> torch.Tensor:
    """The reference's rows, of a prompt with images of patches."""
    return model.reference(expanded(prompt, patch_tokens(images)), images)


def normalized(rows: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(rows, dim=-1).numpy()


def embed(llm: LLM, prompts: Sequence[Any], images: Sequence[Sequence[Any]]) -> np.ndarray:
    return llm.embed(prompts, images=images, progress=io.StringIO())


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def embedder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MediaTestModel:
    return qwen_vl(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_the_last_token_is_embedded(embedder: MediaTestModel, executor: str) -> None:
    with embedder.llm(executor=executor, task="embed") as llm:
        vectors = embed(llm, PROMPTS, IMAGES)
        for vector, prompt, images in zip(vectors, PROMPTS, IMAGES, strict=True):
            rows = expected(embedder, prompt, images)
            np.testing.assert_allclose(vector, normalized(rows[-1]), rtol=0, atol=TOLERANCE)
        assert encoded(llm) == 2, "equal images are encoded once"
        with pytest.raises(EngineError, match="each image needs one"):
            embed(llm, [text(1, 4)], [[SQUARE]])


def test_the_mean_of_all_tokens(embedder: MediaTestModel) -> None:
    """A prompt runs in one step."""
    with embedder.llm(pooling_type="mean") as llm:
        vectors = embed(llm, PROMPTS, IMAGES)
        for vector, prompt, images in zip(vectors, PROMPTS, IMAGES, strict=True):
            mean = expected(embedder, prompt, images).mean(0)
            np.testing.assert_allclose(vector, normalized(mean), rtol=0, atol=TOLERANCE)


def test_prompts_are_computed_in_chunks(embedder: MediaTestModel) -> None:
    prompt = text(1, 30) + IMAGE + text(2, 40)
    with embedder.llm(task="embed", max_num_batched_tokens=32) as llm:
        (vector,) = embed(llm, [prompt], [[SQUARE]])
        rows = expected(embedder, prompt, [SQUARE])
        np.testing.assert_allclose(vector, normalized(rows[-1]), rtol=0, atol=TOLERANCE)


def test_a_reranker_answers_yes_or_no(tmp_path: Path) -> None:
    model = qwen_vl("qwen3_vl", tmp_path)
    overrides = {
        "architectures": ["Qwen3VLForSequenceClassification"],
        "classifier_from_token": ["t20", "t30"],
        "is_original_qwen3_reranker": True,
    }
    head = load_file(tmp_path / "model.safetensors")["lm_head.weight"]
    with model.llm(hf_overrides=overrides) as llm:
        scores = llm.classify(PROMPTS, images=IMAGES, progress=io.StringIO())
        for score, prompt, images in zip(scores, PROMPTS, IMAGES, strict=True):
            no, yes = (expected(model, prompt, images)[-1] @ head[[20, 30]].T).tolist()
            assert score == pytest.approx([1 / (1 + np.exp(no - yes))], abs=TOLERANCE)
    with (
        pytest.raises(ModelConfigError, match="needs the head of a classifier"),
        model.llm(hf_overrides={"architectures": ["Qwen3VLForSequenceClassification"]}),
    ):
        pass


@pytest.mark.parametrize("family", sorted(MAKERS))
def test_tokens_of_any_family_are_classes(family: str, tmp_path: Path) -> None:
    model = make_image_model(family, tmp_path)
    with model.llm(hf_overrides={"classifier_from_token": ["t20", "t30", "t40"]}) as llm:
        found = llm.classify(PROMPTS, images=IMAGES, progress=io.StringIO())
        for scores, prompt, images in zip(found, PROMPTS, IMAGES, strict=True):
            logits = expected(model, prompt, images)[-1, [20, 30, 40]]
            np.testing.assert_allclose(scores, logits.softmax(-1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_colqwen2(tmp_path: Path, executor: str) -> None:
    model = colqwen2(tmp_path)
    with model.llm(executor=executor) as llm:
        found = llm.encode(PROMPTS, images=IMAGES, progress=io.StringIO())
        for rows, prompt, images in zip(found, PROMPTS, IMAGES, strict=True):
            wanted = normalized(expected(model, prompt, images))
            assert rows.shape == (len(wanted), WIDTH)
            np.testing.assert_allclose(rows, wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_colpali(tmp_path: Path, executor: str) -> None:
    model = colpali(tmp_path)
    page = np.random.default_rng(1).normal(size=PIXELS).astype(np.float32)
    prompts, images = [IMAGE + text(1, 5), text(2, 12)], [[page], []]
    with model.llm(executor=executor) as llm:
        found = llm.encode(prompts, images=images, progress=io.StringIO())
        for rows, prompt, own in zip(found, prompts, images, strict=True):
            wanted = normalized(model.reference(expanded(prompt, [16] * len(own)), own))
            np.testing.assert_allclose(rows, wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_colmodernvbert(tmp_path: Path, executor: str) -> None:
    """A small image is one tile, a large one several and the whole."""
    model = colmodernvbert(tmp_path)
    tiles = np.random.default_rng(1).normal(size=(3, *PIXELS)).astype(np.float32)
    around, whole, first, second, newlines = range(5, 10)
    one = [around, whole, *IMAGE * 4, around]
    three = [around, first, *IMAGE * 4, around, second, *IMAGE * 4, newlines, *one]
    prompts = [text(1, 3) + IMAGE + text(2, 9), text(3, 40), text(4, 2) + IMAGE]
    images: list[list[Any]] = [[tiles[0]], [], [(tiles, (1, 1, 2))]]
    read = [text(1, 3) + one + text(2, 9), prompts[1], text(4, 2) + three]
    pixels = [tiles[:1], tiles[:0], tiles]
    with model.llm(executor=executor) as llm:
        found = llm.encode(prompts, images=images, progress=io.StringIO())
        for rows, ids, own in zip(found, read, pixels, strict=True):
            wanted = normalized(model.reference(ids, list(own)))
            np.testing.assert_allclose(rows, wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("executor", ["native", "torch"])
@pytest.mark.parametrize("meta", [False, True])
def test_clip(tmp_path: Path, meta: bool, executor: str) -> None:
    """Texts and images in one step."""
    model, end = clip(tmp_path, meta=meta), [6]
    images = np.random.default_rng(1).normal(size=(2, *PIXELS)).astype(np.float32)
    prompts = [text(1, 9) + end, [CLIP_PLACEHOLDER], text(2, 40) + end, [CLIP_PLACEHOLDER]]
    own: list[list[Any]] = [[], [images[0]], [], [images[1]]]
    with model.llm(executor=executor, max_model_len=77) as llm:
        vectors = embed(llm, prompts, own)
        for vector, ids, seen in zip(vectors, prompts, own, strict=True):
            wanted = normalized(model.reference(ids, seen)[0])
            np.testing.assert_allclose(vector, wanted, rtol=0, atol=TOLERANCE)


def _older(name: str) -> str:
    return name.replace("vlm.language_model.", "vlm.model.", 1)


def _newer(name: str) -> str:
    return name.replace("vlm.", "vlm.model.", 1)


@pytest.mark.parametrize("named", [_older, _newer])
def test_names_of_colqwen2s_checkpoints(tmp_path: Path, named: Callable[[str], str]) -> None:
    model = colqwen2(tmp_path / "model")
    tensors = {
        named(name): each for name, each in load_file(model.path / "model.safetensors").items()
    }
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert built.pooled is not None
    assert (built.pooled.task, built.pooled.width) == (Task.TOKEN_EMBED, WIDTH)
    assert built.takes_media


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
def test_sizes_of_a_model_in_a_model_for_retrieval(tmp_path: Path, part: str) -> None:
    path = colpali(tmp_path).path
    config = json.loads((path / "config.json").read_text())
    config["vlm_config"][part]["hidden_size"] = 2**31 - 1
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match="hidden_size is 2147483647, but the largest dimension"):
        build(ModelSource.open(path), BuildOptions())
