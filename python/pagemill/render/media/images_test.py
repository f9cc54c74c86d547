"""Pixels to what encoders take: as the processors of `transformers` do it."""

from __future__ import annotations

import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagemill.render.errors import RenderError
from pagemill.render.media.processors import open_processor
from pagemill.render.testing.pictures import (
    COHERE2_VISION,
    IDEFICS3,
    INTERNVL,
    LLAMA4,
    LLAVA_NEXT,
    LLAVA_ONEVISION,
    picture,
    processor,
)

CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 24},
    "crop_size": {"height": 24, "width": 24},
}


@pytest.mark.parametrize("size", [(50, 31), (31, 50), (24, 24), (7, 5), (25, 99)])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"size": 30, "crop_size": 24},
        {"size": {"height": 20, "width": 28}, "do_center_crop": False},
        {"do_resize": True, "resample": 2, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2] * 3},
        {"do_normalize": False},
        {"do_rescale": False},
    ],
)
def test_clip_is_that_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    settings = CLIP | changes
    image = picture(*size)
    mine = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    (theirs,) = CLIPImageProcessorPil(**settings)(image, return_tensors="np")["pixel_values"]
    assert isinstance(mine, np.ndarray) and mine.dtype == np.float32
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


QWEN = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 16 * 16,
    "max_pixels": 64 * 64,
}


# As Qwen3-VL's checkpoints have it.
QWEN3 = {
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


@pytest.mark.parametrize("stated", [QWEN, QWEN3])
@pytest.mark.parametrize("size", [(40, 24), (33, 17), (5, 3), (1, 1), (300, 20), (500, 400)])
def test_qwen2_vl_is_that_of_transformers(
    tmp_path: Path, size: tuple[int, int], stated: dict[str, Any]
) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    settings = dict(stated)
    image = picture(*size)
    patches, grid = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    theirs = Qwen2VLImageProcessorPil(**settings)(image, return_tensors="np")
    assert grid == tuple(theirs["image_grid_thw"][0])
    np.testing.assert_allclose(patches, theirs["pixel_values"], rtol=1e-5, atol=1e-5)


GLM = {
    "image_processor_type": "Glm4vImageProcessor",
    "size": {"shortest_edge": 16 * 16, "longest_edge": 64 * 64},
    "patch_size": 4,
}


@pytest.mark.parametrize("size", [(40, 24), (33, 17), (5, 3), (1, 1), (300, 20), (500, 400)])
@pytest.mark.parametrize("name", ["Glm4v", "Glm46V"])
def test_glm4v_is_that_of_transformers(tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    module = f"transformers.models.{name.lower()}.image_processing_pil_{name.lower()}"
    make, image = getattr(import_module(module), f"{name}ImageProcessorPil"), picture(*size)
    settings = GLM | {"image_processor_type": f"{name}ImageProcessor"}
    patches, grid = processor(tmp_path, **settings)(image)
    theirs = make(size=GLM["size"], patch_size=4)(image, return_tensors="np")
    assert grid == tuple(theirs["image_grid_thw"][0])
    np.testing.assert_allclose(patches, theirs["pixel_values"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(500, 400), (90, 10), (2, 3)])
def test_glm4v_images_fit_the_engine(tmp_path: Path, size: tuple[int, int]) -> None:
    _, (_, rows, columns) = processor(tmp_path, max_tokens=10, **GLM)(picture(*size))
    assert rows * columns // 4 <= 10


@pytest.mark.parametrize("size", [(40, 24), (33, 17), (5, 3), (1, 1), (500, 400)])
@pytest.mark.parametrize(
    "settings",
    [{}, {"patch_size": 4, "size": {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}}],
)
@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("ernie4_5_vl_moe", "Ernie4_5_VLMoeImageProcessor"),
        ("paddleocr_vl", "PaddleOCRVLImageProcessor"),
    ],
)
def test_patches_of_one_frame_are_those_of_transformers(
    tmp_path: Path, family: str, name: str, settings: dict[str, Any], size: tuple[int, int]
) -> None:
    module = import_module(f"transformers.models.{family}.image_processing_pil_{family}")
    image = picture(*size)
    patches, grid = processor(tmp_path, image_processor_type=name, **settings)(image)
    theirs = getattr(module, f"{name}Pil")(**settings)(image, return_tensors="np")
    assert grid == tuple(theirs["image_grid_thw"][0])
    expected = theirs["pixel_values"].reshape(len(patches), -1)
    np.testing.assert_allclose(patches, expected, rtol=1e-5, atol=1e-5)


GEMMA4 = {
    "image_processor_type": "Gemma4ImageProcessor",
    "patch_size": 4,
    "max_soft_tokens": 70,
    "pooling_kernel_size": 3,
}
GEMMA4_UNIFIED = GEMMA4 | {"image_processor_type": "Gemma4UnifiedImageProcessor"}


@pytest.mark.parametrize("size", [(40, 24), (33, 17), (1, 1), (500, 400), (3, 500), (500, 3)])
@pytest.mark.parametrize("changes", [{}, {"do_normalize": True, "image_mean": [0.5, 0.4, 0.3]}])
def test_gemma4_is_that_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

    image = picture(*size)
    patches, (time, rows, columns) = processor(tmp_path, **GEMMA4, **changes)(image)
    settings = {key: value for key, value in GEMMA4.items() if key != "image_processor_type"}
    theirs = Gemma4ImageProcessorPil(**settings, **changes)(image, return_tensors="np")
    places = theirs["image_position_ids"][0][: len(patches)]
    assert (time, rows * columns) == (1, 9 * theirs["num_soft_tokens_per_image"][0])
    assert (columns, rows) == tuple(places.max(0) + 1)
    assert places.tolist() == [[i % columns, i // columns] for i in range(len(patches))]
    expected = theirs["pixel_values"][0][: len(patches)]
    np.testing.assert_allclose(patches, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(40, 24), (33, 17), (1, 1), (500, 400), (3, 500), (500, 3)])
def test_patches_of_gemma4_12b_are_squares_of_gemma4(tmp_path: Path, size: tuple[int, int]) -> None:
    """Those of `transformers`, which has no processor with Pillow."""
    patches, (_, rows, columns) = processor(tmp_path, **GEMMA4)(picture(*size))
    squares, grid = processor(tmp_path, **GEMMA4_UNIFIED)(picture(*size))
    assert grid == (1, rows // 3, columns // 3)
    cut = patches.reshape(rows // 3, 3, columns // 3, 3, 4, 4, 3).transpose(0, 2, 1, 4, 3, 5, 6)
    np.testing.assert_array_equal(squares, cut.reshape(len(squares), -1))


@pytest.mark.parametrize("size", [(2000, 15), (15, 2000)])
def test_thin_images_of_gemma4_fit_its_tower(tmp_path: Path, size: tuple[int, int]) -> None:
    """With `transformers` the longer side has 1,158 patches."""
    settings = GEMMA4 | {"max_soft_tokens": 1120}
    _, (_, rows, columns) = processor(tmp_path, **settings)(picture(*size))
    assert sorted([rows, columns]) == [6, 1023]


def test_qwen2_vl_sizes_by_their_newer_names(tmp_path: Path) -> None:
    settings = {key: value for key, value in QWEN.items() if not key.endswith("pixels")}
    newer = settings | {"size": {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}}
    for size in ((5, 3), (500, 400)):
        expected = processor(tmp_path, **QWEN)(picture(*size))[1]
        assert processor(tmp_path, **newer)(picture(*size))[1] == expected


@pytest.mark.parametrize("size", [(500, 400), (90, 10), (64, 64)])
def test_qwen2_vl_images_fit_the_engine(tmp_path: Path, size: tuple[int, int]) -> None:
    _, (_, rows, columns) = processor(tmp_path, max_tokens=10, **QWEN)(picture(*size))
    assert rows * columns // 4 <= 10


PIXTRAL = {
    "image_processor_type": "PixtralImageProcessor",
    "size": {"longest_edge": 64},
    "patch_size": {"height": 8, "width": 8},
}


@pytest.mark.parametrize("size", [(40, 24), (24, 41), (64, 64), (5, 3), (300, 20), (500, 400)])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"patch_size": 4, "resample": 2},
        {"size": {"height": 40, "width": 80}, "image_processor_type": "PixtralImageProcessorFast"},
    ],
)
def test_pixtral_is_that_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    settings = PIXTRAL | changes
    image = picture(*size)
    mine = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    (theirs,) = PixtralImageProcessorPil(**settings)(image, return_tensors="np")["pixel_values"]
    assert isinstance(mine, np.ndarray) and mine.dtype == np.float32
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_pixtral_squares_are_those_of_the_whole_processor(tmp_path: Path) -> None:
    whole = {"patch_size": 4, "spatial_merge_size": 3}
    (tmp_path / "processor_config.json").write_text(json.dumps(whole))
    assert processor(tmp_path, **PIXTRAL)(picture(30, 13)).shape == (3, 24, 36)  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [(500, 400), (90, 10), (10, 90), (64, 64), (199, 1)])
def test_pixtral_images_fit_the_engine(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = processor(tmp_path, max_tokens=12, **PIXTRAL)(picture(*size))
    rows, columns = (side // 8 for side in pixels.shape[1:])  # type: ignore[union-attr]
    assert rows * (columns + 1) <= 12


@pytest.mark.parametrize("changes", [{}, {"size": {"height": 20, "width": 28}, "resample": 2}])
def test_siglip_is_that_of_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    image = picture(50, 31)
    mine = processor(tmp_path, image_processor_type="SiglipImageProcessor", **changes)(image)
    (theirs,) = SiglipImageProcessorPil(**changes)(image, return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["ViT", "DeiT"])
@pytest.mark.parametrize(
    "changes", [{}, {"size": 30, "crop_size": 24}, {"size": {"height": 20, "width": 28}}]
)
def test_squares_are_those_of_transformers(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    """ViT's and DeiT's; older files name their feature extractors."""
    from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    image = picture(50, 31)
    theirs = ViTImageProcessorPil if name == "ViT" else DeiTImageProcessorPil
    changes = changes | {"do_center_crop": name == "DeiT" and "size" not in changes}
    (expected,) = theirs(**changes)(image, return_tensors="np")["pixel_values"]
    mine = processor(tmp_path, image_processor_type=f"{name}ImageProcessor", **changes)(image)
    older = processor(tmp_path, feature_extractor_type=f"{name}FeatureExtractor", **changes)(image)
    np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(older, mine)


DONUT = {"image_processor_type": "DonutImageProcessor", "size": {"height": 40, "width": 30}}


@pytest.mark.parametrize("size", [(50, 31), (31, 50), (24, 24), (9, 40), (30, 40), (99, 12)])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"size": [40, 30]},  # width and height
        {"do_align_long_axis": True, "resample": 3},
        {"image_mean": [0.4, 0.5, 0.6], "do_align_long_axis": True, "size": [30, 40]},
    ],
)
def test_donut_is_that_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.donut.image_processing_pil_donut import DonutImageProcessorPil

    settings, image = DONUT | changes, picture(*size)
    mine = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    (theirs,) = DonutImageProcessorPil(**settings)(image, return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


GEMMA3 = {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 20, "width": 28}}
CROPS = {
    "do_pan_and_scan": True,
    "pan_and_scan_min_crop_size": 12,
    "pan_and_scan_max_num_crops": 4,
    "pan_and_scan_min_ratio_to_activate": 1.2,
}


@pytest.mark.parametrize(
    ("size", "crops"),
    [
        ((50, 31), 2),
        ((50, 48), 0),  # almost square
        ((20, 75), 4),  # crops of 19 pixels
        ((100, 13), 4),  # at most
        ((40, 30), 2),  # at least
        ((22, 11), 0),  # crops would be too small
    ],
)
def test_gemma3_crops_long_images(tmp_path: Path, size: tuple[int, int], crops: int) -> None:
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    image = picture(*size)
    theirs = Gemma3ImageProcessorPil(size=GEMMA3["size"])
    (whole,) = theirs(image, return_tensors="np")["pixel_values"]
    mine = processor(tmp_path, **GEMMA3)(image)
    np.testing.assert_allclose(mine, whole, rtol=1e-5, atol=1e-5)
    mine = processor(tmp_path, **GEMMA3, **CROPS)(image)
    expected = theirs(image, **CROPS, return_tensors="np")
    assert expected["num_crops"] == [crops]
    tiles = mine if crops else mine[None]  # type: ignore[index]
    np.testing.assert_allclose(tiles, expected["pixel_values"], rtol=1e-5, atol=1e-5)


DEEPSEEK_VL = {"image_processor_type": "DeepseekVLImageProcessor", "size": 32, "min_size": 6}


@pytest.mark.parametrize("size", [(40, 24), (24, 41), (16, 16), (5, 3), (300, 20), (50, 51)])
@pytest.mark.parametrize(
    "changes",
    [{}, {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2] * 3}, {"do_normalize": False}],
)
def test_deepseek_vl_is_that_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.deepseek_vl.image_processing_pil_deepseek_vl import (
        DeepseekVLImageProcessorPil,
    )

    settings = DEEPSEEK_VL | {"size": {"height": 32, "width": 32}} | changes
    image = picture(*size)
    mine = processor(tmp_path, **settings)(image)
    janus = processor(tmp_path, **(settings | {"image_processor_type": "JanusImageProcessor"}))
    assert np.array_equal(janus(image), mine)  # type: ignore[arg-type]
    settings.pop("image_processor_type")
    (theirs,) = DeepseekVLImageProcessorPil(**settings)(image, return_tensors="np")["pixel_values"]
    assert isinstance(mine, np.ndarray) and mine.dtype == np.float32
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(40, 24), (24, 41), (16, 16), (5, 3)])
@pytest.mark.parametrize(
    "changes",
    [{}, {"image_mean": [0.5, 0.4, 0.3]}, {"high_res_image_mean": [0.3] * 3, "min_size": 9}],
    ids=str,
)
def test_deepseek_vl_hybrid_is_that_of_transformers(
    tmp_path: Path, size: tuple[int, int], changes: dict[str, Any]
) -> None:
    from transformers.models.deepseek_vl_hybrid.image_processing_pil_deepseek_vl_hybrid import (
        DeepseekVLHybridImageProcessorPil,
    )

    sizes = {
        name: {"height": side, "width": side}
        for name, side in (("size", 32), ("high_res_size", 48))
    }
    settings: dict[str, Any] = DEEPSEEK_VL | sizes | changes
    settings["image_processor_type"] = "DeepseekVLHybridImageProcessor"
    image = picture(*size)
    mine = processor(tmp_path, **settings)(image)
    settings.pop("image_processor_type")
    theirs = DeepseekVLHybridImageProcessorPil(**settings)(image, return_tensors="np")
    both = [theirs[name].reshape(-1) for name in ("pixel_values", "high_res_pixel_values")]
    np.testing.assert_allclose(mine, np.concatenate(both), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        CLIP,
        COHERE2_VISION,
        DEEPSEEK_VL,
        GEMMA3,
        GEMMA4,
        GLM,
        IDEFICS3,
        INTERNVL,
        LLAMA4,
        LLAVA_NEXT,
        LLAVA_ONEVISION,
        PIXTRAL,
        QWEN,
    ],
)
def test_long_thin_images_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(RenderError, match="200 times"):
        processor(tmp_path, **settings)(picture(201, 1))


def test_long_images_of_a_large_edge_are_refused(tmp_path: Path) -> None:
    read = processor(tmp_path, **CLIP | {"size": {"shortest_edge": 1024}})
    assert read(picture(64, 1)).shape == (3, 24, 24)
    with pytest.raises(RenderError, match="would have 1024 x 66560 pixels"):
        read(picture(65, 1))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "no preprocessor_config"),
        ({"image_processor_type": "BeitImageProcessor"}, "known: Aria"),
        (DONUT | {"do_pad": False}, "do_pad must be true"),
        (DONUT | {"size": [2**20, 2**20]}, "size at most"),
        (CLIP | {"size": {"shortest_edge": 0}}, "not a positive number"),
        (CLIP | {"size": "large"}, "not a positive number"),
        (CLIP | {"crop_size": {"height": 3}}, "cannot be used"),
        (CLIP | {"do_pad": True}, "do_pad"),
        (CLIP | {"image_mean": [1, 2]}, "cannot be used"),
        (CLIP | {"resample": 99}, "cannot be used"),
        (COHERE2_VISION | {"max_patches": 65}, "from the least to 64"),
        (DEEPSEEK_VL | {"do_pad": False}, "do_pad true"),
        (DEEPSEEK_VL | {"min_size": 33}, "a square of min_size"),
        (DEEPSEEK_VL | {"image_mean": [0.5, 123.0, 0.5]}, "three numbers from 0 to 1"),
        (DEEPSEEK_VL | {"image_mean": [0.5]}, "cannot be used"),
        (IDEFICS3 | {"max_image_size": {}}, "not a positive number"),
        (IDEFICS3 | {"do_resize": False}, "do_resize must be true"),
        (IDEFICS3 | {"size": {"longest_edge": 5000}}, "at most 4096 pixels"),
        (IDEFICS3 | {"max_image_size": {"longest_edge": 7}}, "tiles of 7 pixels"),
        (IDEFICS3 | {"max_image_size": {"longest_edge": 2**31 - 1}}, "may have 4096"),
        (INTERNVL | {"do_resize": False}, "do_resize must be true"),
        (INTERNVL | {"size": {"height": 5000, "width": 1}}, "a side may have 4096 pixels"),
        (INTERNVL | {"size": 2000}, "size is 2000 x 2000 and max_patches 12"),
        (INTERNVL | {"min_patches": 13}, "from the least to 64"),
        (INTERNVL | {"max_patches": 65}, "from the least to 64"),
        (LLAMA4 | {"resize_to_max_canvas": True}, "resize_to_max_canvas false"),
        (LLAMA4 | {"size": {"height": 16, "width": 8}}, "a tile must be a square"),
        (LLAMA4 | {"max_patches": 65}, "may have 64 of them"),
        (LLAVA_NEXT | {"size": {"shortest_edge": 8}}, "shortest_edge of a square crop_size"),
        (LLAVA_NEXT | {"image_grid_pinpoints": []}, "must be 1 to 64 sizes"),
        (LLAVA_NEXT | {"image_grid_pinpoints": [[8192, 16]]}, "at most 4096 pixels"),
        (LLAVA_NEXT | {"image_grid_pinpoints": [[32, 24]]}, "multiples of 16"),
        (LLAVA_ONEVISION | {"do_center_crop": True}, "do_center_crop false"),
        (LLAVA_ONEVISION | {"size": {"height": 16, "width": 8}}, "size must be a square"),
        (LLAVA_ONEVISION | {"image_grid_pinpoints": [[32, 24]]}, "multiples of 16"),
        (PIXTRAL | {"do_resize": False}, "do_resize must be true"),
        (PIXTRAL | {"size": {"longest_edge": 0}}, "not a positive number"),
        (QWEN | {"patch_size": -1}, "not a positive number"),
        (GLM | {"size": {"longest_edge": "large"}}, "not a positive number"),
        (GLM | {"do_resize": False}, "do_resize must be true"),
        (GEMMA4 | {"patch_size": 200}, "600 x 600 pixels; an image may have 4096 x 4096"),
        (GEMMA4_UNIFIED | {"pooling_kernel_size": 2**30}, "an image may have 4096 x 4096"),
        (CLIP | {"size": {"height": 2**13, "width": 2**12}}, "at most 4096 x 4096 pixels"),
        (CLIP | {"crop_size": [24]}, "is not a height and a width"),
        (CLIP | {"rescale_factor": 10**400}, "rescale_factor is 1000"),
        (CLIP | {"rescale_factor": math.nan}, "rescale_factor is nan; it must be a number"),
        (CLIP | {"image_mean": [0.5, 1e300, 0.5]}, "image_mean is 1e[+]300; it must be a number"),
        (CLIP | {"image_std": [0.5, 0.0, 0.5]}, "image_std is 0.0; it must be a number from 1e-06"),
        (DEEPSEEK_VL | {"size": 5000}, "min_size or more, and at most 4096"),
        (GEMMA3 | {"size": 5000}, "size is 5000 x 5000 with 0 crops"),
        (GLM | {"merge_size": 2**20}, "such a square may have 131072 pixels"),
        (PIXTRAL | {"patch_size": 30000}, "patches of 30000 pixels"),
        (QWEN | {"temporal_patch_size": 4096}, "span 4096 images"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(RenderError, match=why):
        processor(tmp_path, **settings)


def test_settings_within_those_of_a_processor(tmp_path: Path) -> None:
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": CLIP}))
    assert open_processor(tmp_path, 9)(picture(30, 30)).shape == (3, 24, 24)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "overrides", "shape"),
    [
        ("CLIPImageProcessor", {"size": 30, "crop_size": 20}, (3, 20, 20)),
        ("Qwen2VLImageProcessor", {"max_pixels": 10_000}, (36, 1176)),
    ],
)
def test_settings_are_replaced(
    tmp_path: Path, kind: str, overrides: dict[str, Any], shape: tuple[int, ...]
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": kind}))

    def processed(overrides: dict[str, Any]) -> np.ndarray:
        found = open_processor(tmp_path, 1000, overrides)(picture(300, 300))
        return found[0] if isinstance(found, tuple) else found

    assert processed(overrides).shape == shape != processed({}).shape
    for name in ("num_frames", "image_processor_type"):
        with pytest.raises(RenderError, match=f"{name} cannot be set: .* image_mean"):
            open_processor(tmp_path, 1000, {**overrides, name: 1})
    with pytest.raises(RenderError, match="cannot be used"):
        open_processor(tmp_path, 1000, dict.fromkeys(overrides, -1))
