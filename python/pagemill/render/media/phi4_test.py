"""Images of Phi-4 multimodal: tiles, margins and numbers are those of the processor of
`transformers`, whose images are resized by Pillow here."""

from __future__ import annotations

import json
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import image_processing_backends
from transformers.image_utils import SizeDict

from pagemill.render.errors import RenderError
from pagemill.render.media.processors import ImageProcessor, open_processor

# It imports torchvision, which is not installed and which resizing alone needs.
assert image_processing_backends
_NAMES = ("", ".transforms", ".transforms.v2", ".transforms.v2.functional")
with patch.dict(sys.modules, {f"torchvision{name}": MagicMock() for name in _NAMES}):
    MODULE: Any = import_module(
        "transformers.models.phi4_multimodal.image_processing_phi4_multimodal"
    )
SETTINGS = {
    "image_processor_type": "Phi4MultimodalImageProcessorFast",
    "size": {"height": 32, "width": 32},
    "patch_size": 4,
    "dynamic_hd": 6,
}


def opened(folder: Path, **changes: Any) -> ImageProcessor:
    (folder / "preprocessor_config.json").write_text(json.dumps(SETTINGS | changes))
    return open_processor(folder, 1000)


def picture(width: int, height: int) -> Image.Image:
    """Noise."""
    values = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(values)


def _resized(image: torch.Tensor, size: list[int]) -> torch.Tensor:
    pixels = Image.fromarray(image.permute(1, 2, 0).numpy())
    resized = pixels.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return torch.tensor(np.asarray(resized)).permute(2, 0, 1)


def _padded(image: torch.Tensor, padding: list[int], fill: list[int]) -> torch.Tensor:
    left, top, right, bottom = padding
    assert fill == [255] * 3
    return torch.nn.functional.pad(image, (left, right, top, bottom), value=255)


def _whole(pixels: torch.Tensor, size: SizeDict, resample: Any, antialias: bool) -> torch.Tensor:
    assert not antialias
    sides = (size.height, size.width)
    return torch.nn.functional.interpolate(pixels[None], sides, mode=resample)[0]


def expected(image: Image.Image) -> dict[str, Any]:
    """What the class makes of it."""
    cls = MODULE.Phi4MultimodalImageProcessor
    stub = SimpleNamespace(
        rescale_and_normalize=lambda image, *_: (image / 255 - 0.5) / 0.5, resize=_whole
    )
    for name in (
        "find_closest_aspect_ratio",
        "dynamic_preprocess",
        "pad_to_max_num_crops",
        "pad_mask_to_max_num_crops",
    ):
        setattr(stub, name, partial(getattr(cls, name), stub))
    pixels = torch.tensor(np.asarray(image)).permute(2, 0, 1)
    made = SimpleNamespace(resize=_resized, pad=_padded)
    with patch.object(MODULE, "tvF", made):
        return cls._preprocess(
            stub, [pixels], True, SizeDict(height=32, width=32), "bicubic", True, 1 / 255, True,
            [0.5] * 3, [0.5] * 3, 4, 6, None,
        )  # fmt: skip


@pytest.mark.parametrize(
    "size", [(32, 32), (50, 40), (30, 20), (90, 33), (33, 90), (64, 64), (190, 60), (70, 300)]
)
def test_tiles_and_margins(size: tuple[int, int], tmp_path: Path) -> None:
    image = picture(*size)
    wanted = expected(image)
    tiles, grid = opened(tmp_path)(image)
    np.testing.assert_allclose(tiles, wanted["image_pixel_values"][0], atol=2e-5)
    height, width = (int(side) // 32 for side in wanted["image_sizes"][0])
    masks = wanted["image_attention_mask"][0][1:].reshape(height, width, 8, 8)
    canvas = masks.permute(0, 2, 1, 3).reshape(height * 8, width * 8)
    assert grid == (1, int(canvas[:, 0].sum()), int(canvas[0].sum()))


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="would become 192 x 4 pixels"):
        opened(tmp_path)(picture(600, 15))
    for changes in ({"size": {"height": 32, "width": 16}}, {"patch_size": 5}, {"dynamic_hd": 65}):
        with pytest.raises(RenderError, match="a square of whole patches"):
            opened(tmp_path, **changes)
    with pytest.raises(RenderError, match="all tiles of an image may have 4096 x 4096 pixels"):
        opened(tmp_path, size=2**20, patch_size=1)
