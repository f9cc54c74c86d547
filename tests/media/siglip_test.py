"""SigLIP, and SigLIP 2 with images of any size: vectors of texts and images are those of
`transformers`."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.models.base import ModelConfigError
from pagemill.models.multimodal.siglip import SiglipModel
from pagemill.render.errors import RenderError
from pagemill.render.renderer import Renderer
from pagemill.weights.source import ModelSource

from tests.media.media_model import encoded, text
from tests.media.siglip_models import (
    LENGTH,
    PAD,
    PIXELS,
    PLACEHOLDER,
    SIZES,
    TEXT,
    Grid,
    padded,
    siglip,
    siglip2,
)

# Both sides compute in f32; vectors have the length 1.
TOLERANCE = 2e-5


def pixels(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=PIXELS).astype(np.float32)


def patches(seed: int, rows: int, columns: int) -> tuple[np.ndarray, Grid]:
    values = np.random.default_rng(seed).normal(size=(rows * columns, 48)).astype(np.float32)
    return values, (1, rows, columns)


MODELS = {
    "siglip": (siglip, [pixels(1), pixels(2)]),
    "siglip2": (siglip2, [patches(1, 3, 5), patches(2, 5, 5)]),
}


@pytest.mark.parametrize("executor", ["native", "torch"])
@pytest.mark.parametrize("family", MODELS)
def test_texts_and_images(tmp_path: Path, family: str, executor: str) -> None:
    """In one step."""
    make, images = MODELS[family]
    model = make(tmp_path)
    first, second = padded(text(1, 9)), padded(text(2, 20))
    prompts = [first, [PLACEHOLDER], second, [PLACEHOLDER], [PLACEHOLDER]]
    own: list[list[Any]] = [[], [images[0]], [], [images[1]], [images[0]]]
    with model.llm(executor=executor, max_model_len=LENGTH) as llm:
        vectors = llm.embed(prompts, images=own, progress=io.StringIO())
        for vector, ids, seen in zip(vectors, prompts, own, strict=True):
            wanted = torch.nn.functional.normalize(model.reference(ids, seen)[0], dim=-1).numpy()
            np.testing.assert_allclose(vector, wanted, rtol=0, atol=TOLERANCE)
        assert encoded(llm) == 2, "equal images are encoded once"


def test_texts_are_padded(tmp_path: Path) -> None:
    """Texts, not images, to the longest one, by the token that the tokenizer's files name."""
    model = siglip(tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    ids = text(1, 9)
    prompt = " ".join(f"t{token}" for token in ids)
    with model.llm(max_model_len=LENGTH) as llm:
        vectors = llm.embed([prompt, "<|image|>"], images=[[], [pixels(1)]], progress=io.StringIO())
        for vector, row in zip(
            vectors,
            [model.reference(padded(ids), []), model.reference([], [pixels(1)])],
            strict=True,
        ):
            wanted = torch.nn.functional.normalize(row[0], dim=-1).numpy()
            np.testing.assert_allclose(vector, wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("pad", "length", "why"), [("<pad>", LENGTH, "has no pad_token"), (f"t{PAD}", "x", "'x'")]
)
def test_files_that_do_not_say_how_texts_are_padded(
    tmp_path: Path, pad: str, length: object, why: str
) -> None:
    siglip(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": pad}))
    source = ModelSource.open(tmp_path)
    source = replace(
        source, config={**source.config, "text_config": {"max_position_embeddings": length}}
    )
    with pytest.raises(RenderError, match=why):
        Renderer.open(source)


def test_images_of_too_many_patches_are_refused(tmp_path: Path) -> None:
    with (
        siglip2(tmp_path).llm(max_model_len=LENGTH) as llm,
        pytest.raises(EngineError, match="has features of 72 rows .* at most 64 rows"),
    ):
        llm.embed([[PLACEHOLDER]], images=[[patches(1, 9, 8)]], progress=io.StringIO())


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("vision_config", {"vision_use_head": False}),
        ("text_config", {"projection_size": 20}),
        ("vision_config", {"hidden_size": 24}),
    ],
)
def test_towers_that_do_not_fit_are_refused(part: str, changes: dict[str, Any]) -> None:
    vision = SIZES | {"image_size": 32, "patch_size": 8}
    config: dict[str, Any] = {"text_config": TEXT, "vision_config": vision}
    config[part] = config[part] | changes
    with pytest.raises(ModelConfigError, match="vision_use_head must be true, and images have"):
        SiglipModel.from_config(config)
