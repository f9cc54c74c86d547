"""Models with an encoder of images on a device, or with one of audio, too: encoders run there, and
tokens are those of `transformers`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.adapters.adapted_media import adapted, check_batch
from tests.media import got_ocr2_models
from tests.media.audio_models import audio
from tests.media.media_model import MediaTestModel, encoded, text
from tests.media.omni_models import AUDIO, IMAGE, omni_model
from tests.media.qwen_vl_models import image as patches
from tests.parity.tiny_models import (
    LLAVA_IMAGE,
    LLAVA_PLACEHOLDER,
    QWEN2_VL_PLACEHOLDER,
    make,
)

PLUGIN = os.environ.get("PAGEMILL_TEST_EMULATED_GPU", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_EMULATED_GPU names no plugin")

QWEN2_VL_CHANNELS = 3 * 2 * 4 * 4


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))


@pytest.mark.parametrize("ranks", [1, 2])
def test_images_of_one_size(ranks: int, tmp_path: Path) -> None:
    reference = make("llava", tmp_path)

    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        pixels = torch.tensor(np.stack(images)) if images else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    random, image = np.random.default_rng(1), [LLAVA_PLACEHOLDER]
    a, b = (random.normal(size=LLAVA_IMAGE).astype(np.float32) for _ in range(2))
    prompts = [text(1, 3) + image + text(2, 5) + image, text(5, 9), image + text(4, 4)]
    model, images = MediaTestModel(tmp_path, logits), [[a, b], [], [b]]
    # An image is longer than what is left of a step.
    options = {"device": "emulated", "dtype": "f32", "tensor_parallel_size": ranks}
    with model.llm(max_num_batched_tokens=17, **options) as llm:
        for output, own in zip(model.generate(llm, prompts, images), images, strict=True):
            model.check(output, own)
        assert encoded(llm) == 2, "equal images are encoded once"


@pytest.mark.parametrize("ranks", [1, 2])
def test_images_of_several_sizes(ranks: int, tmp_path: Path) -> None:
    reference = make("qwen2_vl", tmp_path)

    def logits(
        ids: list[int], images: Sequence[tuple[np.ndarray, tuple[int, int, int]]]
    ) -> torch.Tensor:
        row = torch.tensor([ids])
        pixels = torch.tensor(np.concatenate([p for p, _ in images])) if images else None
        grid = torch.tensor([g for _, g in images]) if images else None
        reference.model.rope_deltas = None  # of the previous call
        with torch.inference_mode():
            return reference(
                row,
                pixel_values=pixels,
                image_grid_thw=grid,
                mm_token_type_ids=(row == QWEN2_VL_PLACEHOLDER).int(),
                use_cache=False,
            ).logits[0]

    random, image = np.random.default_rng(1), [QWEN2_VL_PLACEHOLDER]
    square, wide = (
        (random.normal(size=(h * w, QWEN2_VL_CHANNELS)).astype(np.float32), (1, h, w))
        for h, w in ((4, 4), (2, 6))
    )
    prompts = [text(1, 3) + image + text(2, 5) + image, text(5, 9)]
    model, images = MediaTestModel(tmp_path, logits), [[square, wide], []]
    with model.llm(device="emulated", dtype="f32", tensor_parallel_size=ranks) as llm:
        for output, own in zip(model.generate(llm, prompts, images), images, strict=True):
            model.check(output, own)


@pytest.mark.parametrize("ranks", [1, 2])
def test_images_and_audio(ranks: int, tmp_path: Path) -> None:
    model, seen, heard = omni_model("qwen2_5_omni", tmp_path), patches(1, 4, 6), audio(2, 5000)
    prompt = text(1, 3) + AUDIO + text(2, 5) + IMAGE + text(3, 2)
    options = {"device": "emulated", "dtype": "f32", "tensor_parallel_size": ranks}
    with model.llm(max_num_batched_tokens=17, **options) as llm:
        (output,) = model.generate(llm, [prompt], [[seen]], audios=[[heard]])
        model.check(output, [seen, heard])
        if ranks > 1:
            return  # their weights do not leave memory
        llm.sleep()
        llm.wake()
        (again,) = model.generate(llm, [prompt], [[seen]], audios=[[heard]])
        assert again.choices == output.choices


def test_activations_of_two_bytes(tmp_path: Path) -> None:
    """The automatic type on a device."""
    make("llava", tmp_path)
    model = MediaTestModel(tmp_path, lambda ids, images: torch.zeros(0))
    image = np.random.default_rng(1).normal(size=LLAVA_IMAGE).astype(np.float32)
    prompt = text(1, 3) + [LLAVA_PLACEHOLDER] + text(2, 5)
    with model.llm(device="emulated") as llm:
        (output,) = model.generate(llm, [prompt], [[image]])
        assert len(output.choices[0].token_ids) == 6
        assert encoded(llm) == 1


@pytest.mark.filterwarnings("ignore")
def test_adapters_of_encoders(tmp_path: Path) -> None:
    """Slots of the tower's layers are on the device as those of the model's."""
    made = adapted("llava", tmp_path, target_modules="all-linear", spread=0.1)
    check_batch(made, device="emulated", dtype="f32")


def test_rows_of_tokens(tmp_path: Path) -> None:
    """SAM's tower: rows that an index gathers, and biases of each query."""
    torch.manual_seed(0)
    model = got_ocr2_models.image_model(tmp_path, got_ocr2_models.got_ocr2())
    a, b = got_ocr2_models.image(1), got_ocr2_models.image(2)
    prompts = [text(1, 3) + got_ocr2_models.IMAGE + text(2, 5), got_ocr2_models.IMAGE, text(5, 9)]
    images = [[a], [b], []]
    with model.llm(device="emulated", dtype="f32", max_num_batched_tokens=17) as llm:
        for output, own in zip(model.generate(llm, prompts, images), images, strict=True):
            model.check(output, own)
