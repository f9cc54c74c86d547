"""Pixels to what an encoder takes, as a checkpoint's `preprocessor_config.json` says.

    processor = open_processor(Path("llava-1.5-7b-hf"), max_tokens=2048)
    pixels = processor(image)

The results are those of the processors of `transformers` with these names, with Pillow; what has
none with Pillow is resized with it all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object
from pagemill.render.media.deepseek_ocr2 import DeepseekOcr2Processor
from pagemill.render.media.donut import DonutProcessor
from pagemill.render.media.gemma4 import Gemma4Processor
from pagemill.render.media.granite_docling import GraniteDoclingProcessor
from pagemill.render.media.muse_glimmer import MuseGlimmerProcessor
from pagemill.render.media.nemotron import NemotronOmniProcessor
from pagemill.render.media.padded import AriaProcessor, PaddedProcessor
from pagemill.render.media.patches import check_group, cut_patches, fit_size
from pagemill.render.media.phi4 import Phi4Processor
from pagemill.render.media.pixels import (
    CLIP_MEAN,
    CLIP_STD,
    HALF,
    Colors,
    center,
    check_aspect,
    positive,
    resampling,
    short_side_resized,
    sides,
)
from pagemill.render.media.siglip2 import Siglip2Processor
from pagemill.render.media.slices import QuarteredProcessor, SlicedProcessor
from pagemill.render.media.tiles import (
    MAX_SIDE,
    Gemma3Processor,
    GridProcessor,
    Idefics3Processor,
    Lfm2VlProcessor,
    Llama4Processor,
    LlavaNextProcessor,
)
from pagemill.render.special_tokens import read_json

# Of an image in all frames that its patches span.
_MAX_COPIED_PIXELS = 2 * MAX_SIDE**2
_HALF = {"image_mean": HALF, "image_std": HALF}

Prepared = np.ndarray | tuple[np.ndarray, tuple[int, int, int]]
"""Pixels, float32 [3, height, width], or tiles, float32 [tiles, 3, height, width], or pixels of
several sizes one after the other; or patches, float32 [patches, channels], or tiles, and three
numbers in time, height and width: of patches or tiles, or of pixels that the image had
(`PreparedMedia`)."""


class ImageProcessor(Protocol):
    """Makes an encoder's input of an RGB image. Raises RenderError for one that it cannot take."""

    def __call__(self, image: Image.Image) -> Prepared: ...


def open_processor(
    folder: Path, max_tokens: int, overrides: Mapping[str, Any] | None = None
) -> ImageProcessor:
    """The processor of the checkpoint in `folder`.

    Args:
      folder: has preprocessor_config.json, or processor_config.json with `image_processor`; of
        models whose own code reads images, config.json.
      max_tokens: of an image; larger ones are made smaller, if the model has images of any size.
      overrides: settings in place of those of the file; each must be one that the processor reads.

    Raises:
      RenderError: there is none, or it does what is not known here.
    """
    whole = read_json(folder / "processor_config.json")
    settings = read_json(folder / "preprocessor_config.json") or as_object(
        whole.get("image_processor")
    )
    model = read_json(folder / "config.json")
    by_model = _BY_MODEL.get(str(model.get("model_type")))
    if by_model is not None:
        settings = {**model, "image_processor_type": by_model}
    if not settings:
        raise RenderError(
            f"{folder} has no preprocessor_config.json, which says how images are cut"
        )
    kind = _kind(settings)
    name = kind.removesuffix("Fast").removesuffix("Pil")
    name = _OF_MODEL.get(str(model.get("model_type")), name)
    make = _PROCESSORS.get(name)
    if make is None:
        raise RenderError(f"image_processor_type is {kind[:60]!r}; known: {', '.join(_PROCESSORS)}")
    overrides = overrides or {}
    beside = {key: whole[key] for key in _BESIDE.get(name, ()) if key in whole}
    nested = as_object(settings.get("media_proc_cfg")) or {}  # of Kimi K2.5
    tower = as_object(model.get("vision_config")) or {}
    of_tower = {key: tower[key] for key in _OF_TOWER.get(name, ()) if key in tower}
    read = _ReadSettings({**of_tower, **settings, **nested, **beside, **overrides})
    try:
        processor = make(read, max_tokens)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise RenderError(f"preprocessor_config.json cannot be used: {error!s:.300}") from None
    if unread := sorted(overrides.keys() - read.keys_read):
        raise RenderError(
            f"{', '.join(unread)} cannot be set: this model's processor reads"
            f" {', '.join(sorted(read.keys_read))}"
        )
    return processor


def _kind(settings: Mapping[str, Any]) -> str:
    """The type of the processor; of files that come with their own code, perhaps its class, and of
    older ones, that of their feature extractor."""
    code = as_object(settings.get("auto_map")) or {}
    _, _, name = str(code.get("AutoImageProcessor", "")).rpartition(".")
    name = name or str(settings.get("feature_extractor_type", ""))
    kind = str(settings.get("image_processor_type", name))
    return kind.replace("FeatureExtractor", "ImageProcessor")


class _ReadSettings(Mapping[str, Any]):
    """Settings, and the keys of those that were looked up."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.keys_read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.keys_read.add(key)
        return self._settings[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)


@dataclass(frozen=True, slots=True)
class ClipProcessor:
    """Resizes to a `size`, or so that the shorter side has `shortest_edge`; cuts out the center."""

    colors: Colors
    resample: Image.Resampling
    shortest_edge: int | None
    size: tuple[int, int] | None
    """Height and width."""
    crop: tuple[int, int] | None

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> ClipProcessor:
        """Reads the settings; all images have the same number of tokens."""
        if settings.get("do_pad"):
            raise ValueError("do_pad is not known")
        edge, size = None, None
        if settings.get("do_resize", True):
            given = settings.get("size", {"shortest_edge": 224})
            named = as_object(given)
            edge = given if named is None else named.get("shortest_edge")
            size = None if edge is not None or named is None else sides(named)
        if size is not None and math.prod(size) > MAX_SIDE**2:
            raise ValueError(f"size is {size}; at most {MAX_SIDE} x {MAX_SIDE} pixels are known")
        crop = settings.get("crop_size", 224) if settings.get("do_center_crop", True) else None
        return cls(
            Colors.of(settings),
            resampling(settings, Image.Resampling.BICUBIC),
            None if edge is None else positive(edge),
            size,
            None if crop is None else sides(crop),
        )

    def __call__(self, image: Image.Image) -> np.ndarray:
        check_aspect(image)
        if self.shortest_edge is not None:
            image = short_side_resized(image, self.shortest_edge, self.resample)
        elif self.size is not None:
            height, width = self.size
            image = image.resize((width, height), self.resample)
        if self.crop is not None:
            image = center(image, *self.crop)
        return self.colors(image)


@dataclass(frozen=True, slots=True)
class DeepseekVlProcessor:
    """Resizes so that the longer side has `edge` pixels and the shorter at least `least`, and puts
    the image into the middle of a square of one color."""

    colors: Colors
    resample: Image.Resampling
    edge: int
    least: int
    margin: tuple[int, int, int]
    """Red, green and blue around the image."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> DeepseekVlProcessor:
        """Reads the settings; all images have the same number of tokens."""
        del max_tokens
        height, width = sides(settings.get("size", 384))
        least = positive(settings.get("min_size", 14))
        pads = settings.get("do_resize", True) and settings.get("do_pad", True)
        if not pads or height != width or not least <= height <= MAX_SIDE:
            raise ValueError(
                "size must be a square of min_size or more, and at most"
                f" {MAX_SIDE}, do_resize and do_pad true"
            )
        means = as_array(settings.get("image_mean", CLIP_MEAN)) or []
        if len(means) != 3 or not all(
            type(each) in (int, float) and 0 <= each <= 1 for each in means
        ):
            raise ValueError("image_mean must be three numbers from 0 to 1")
        red, green, blue = (int(255 * mean) for mean in means)
        resample = resampling(settings, Image.Resampling.BICUBIC)
        return cls(Colors.of(settings), resample, height, least, (red, green, blue))

    def __call__(self, image: Image.Image) -> np.ndarray:
        return self.colors(self.square(image))

    def square(self, image: Image.Image) -> Image.Image:
        """The image in the middle of a square."""
        check_aspect(image)
        scale = self.edge / max(image.size)
        width, height = (max(round(side * scale), self.least) for side in image.size)
        square = Image.new("RGB", (self.edge, self.edge), self.margin)
        corner = (self.edge - width) // 2, (self.edge - height) // 2
        square.paste(image.resize((width, height), self.resample), corner)
        return square


_LARGE_DEFAULTS: Mapping[str, Any] = {
    "size": 1024,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
    "resample": Image.Resampling.BICUBIC,
}


@dataclass(frozen=True, slots=True)
class DeepseekVlHybridProcessor:
    """Puts the image into a square as DeepSeek-VL's processor does, a `large` one, and resizes that
    to a `small` one."""

    small: DeepseekVlProcessor
    large: DeepseekVlProcessor

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> DeepseekVlHybridProcessor:
        """Reads the settings; those of the large image begin with `high_res_`."""
        large = {
            key: settings.get(f"high_res_{key}", default)
            for key, default in _LARGE_DEFAULTS.items()
        }
        return cls(
            DeepseekVlProcessor.of(settings, max_tokens),
            DeepseekVlProcessor.of({**settings, **large}, max_tokens),
        )

    def __call__(self, image: Image.Image) -> np.ndarray:
        """The pixels of the small image and then of the large one, f32, one array after the
        other."""
        square, edge = self.large.square(image), self.small.edge
        small = self.small.colors(square.resize((edge, edge), self.small.resample))
        return np.concatenate([small.reshape(-1), self.large.colors(square).reshape(-1)])


@dataclass(frozen=True, slots=True)
class Qwen2VlProcessor:
    """Resizes so that an image has from `min_pixels` to `max_pixels`, keeps its shape about, and
    consists of whole groups of patches; patches of a group to be merged are consecutive."""

    colors: Colors
    resample: Image.Resampling
    min_pixels: float
    max_pixels: float
    patch: int
    merge: int
    frames: int
    """Images that a patch spans; all are the same one."""
    enlarges: bool = False
    """Whether an image that is narrower than a group is first made as wide as one."""
    row_by_row: bool = False
    """Whether patches are in rows, not in groups."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> Qwen2VlProcessor:
        """Reads the settings; an image becomes no larger than `max_tokens`."""
        size = as_object(settings.get("size")) or {}
        # The older keys win, as in `transformers`.
        least = settings.get("min_pixels", size.get("shortest_edge", 56 * 56))
        most = settings.get("max_pixels", size.get("longest_edge", 28 * 28 * 1280))
        return cls.within(settings, max_tokens, positive(least), positive(most))

    @classmethod
    def within(
        cls, settings: Mapping[str, Any], max_tokens: int, least: float, most: float
    ) -> Qwen2VlProcessor:
        """As `of`, from `least` to `most` pixels."""
        if not settings.get("do_resize", True):
            raise ValueError("do_resize must be true")
        patch, merge = (
            positive(settings.get(f"{name}_size", default))
            for name, default in (("patch", 14), ("merge", 2))
        )
        frames = positive(settings.get("temporal_patch_size", 2))
        check_group(patch, merge, frames)
        room = min(max_tokens * (patch * merge) ** 2, _MAX_COPIED_PIXELS // frames)
        return cls(
            Colors.of(settings),
            resampling(settings, Image.Resampling.BICUBIC),
            min(least, room),
            min(most, room),
            patch,
            merge,
            frames,
        )

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, tuple[int, int, int]]:
        check_aspect(image)
        factor, bounds = self.patch * self.merge, (self.min_pixels, self.max_pixels)
        size = image.height, image.width
        height, width = fit_size(size, factor, bounds, enlarges=self.enlarges)
        pixels = self.colors(image.resize((width, height), self.resample))
        frames = np.broadcast_to(pixels, (self.frames, *pixels.shape))
        return cut_patches(frames, self.patch, 1 if self.row_by_row else self.merge)


@dataclass(frozen=True, slots=True)
class PixtralProcessor:
    """Makes an image no larger than `most`, keeps its shape about, and resizes it to whole tokens
    of `unit` pixels."""

    colors: Colors
    resample: Image.Resampling
    most: tuple[int, int]
    """Height and width."""
    unit: tuple[int, int]
    max_tokens: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], max_tokens: int) -> PixtralProcessor:
        """Reads the settings; an image becomes no larger than `max_tokens`, of which each row has
        one more than its patches."""
        if not settings.get("do_resize", True) or settings.get("do_center_crop"):
            raise ValueError("do_resize must be true, and do_center_crop false")
        size = as_object(settings.get("size", {"longest_edge": 1024})) or {}
        edge = size.get("longest_edge")
        merge = positive(settings.get("spatial_merge_size", 1))
        height, width = sides(settings.get("patch_size", 16))
        check_group(max(height, width), merge, 1)
        return cls(
            Colors.of(settings),
            resampling(settings, Image.Resampling.BICUBIC),
            sides(size if edge is None else edge),
            (height * merge, width * merge),
            max_tokens,
        )

    def __call__(self, image: Image.Image) -> np.ndarray:
        check_aspect(image)
        ratio = max(1.0, image.height / self.most[0], image.width / self.most[1])
        rows, columns = self._tokens(image, ratio)
        while rows * (columns + 1) > self.max_tokens and rows * columns > 1:
            ratio *= 1.02
            rows, columns = self._tokens(image, ratio)
        size = (columns * self.unit[1], rows * self.unit[0])
        return self.colors(image.resize(size, self.resample))

    def _tokens(self, image: Image.Image, ratio: float) -> tuple[int, int]:
        """Rows and columns of the image, made smaller by `ratio`."""
        height, width = math.floor(image.height / ratio), math.floor(image.width / ratio)
        rows, columns = -(-height // self.unit[0]), -(-width // self.unit[1])
        return max(rows, 1), max(columns, 1)


def _ernie4_5_vl(settings: Mapping[str, Any], max_tokens: int) -> Qwen2VlProcessor:
    """As Qwen2-VL's, with other defaults, and without the older keys of bounds."""
    size = as_object(settings.get("size")) or {}
    least, most = size.get("shortest_edge", 56 * 56), size.get("longest_edge", 28 * 28 * 6177)
    frames = settings.get("temporal_patch_size", 1)
    made = Qwen2VlProcessor.within(settings, max_tokens, positive(least), positive(most))
    return replace(made, frames=positive(frames))


def _glm4v(settings: Mapping[str, Any], max_tokens: int) -> Qwen2VlProcessor:
    """The bounds count the pixels of all frames of a patch."""
    size = as_object(settings.get("size")) or {}
    least, most = size.get("shortest_edge", 112 * 112), size.get("longest_edge", 28 * 28 * 15000)
    frames = positive(settings.get("temporal_patch_size", 2))
    bounds = positive(least) / frames, positive(most) / frames
    return replace(Qwen2VlProcessor.within(settings, max_tokens, *bounds), enlarges=True)


def _paddleocr_vl(settings: Mapping[str, Any], max_tokens: int) -> Qwen2VlProcessor:
    """As Qwen2-VL's, with other defaults and patches in rows."""
    size = {"shortest_edge": 384 * 384, "longest_edge": 1536 * 1536}
    settings = {"size": size, "temporal_patch_size": 1, **settings}
    made = Qwen2VlProcessor.of(settings, max_tokens)
    return replace(made, enlarges=True, row_by_row=True)


def _video_llama3(settings: Mapping[str, Any], max_tokens: int) -> Qwen2VlProcessor:
    """As Qwen2-VL's, with other defaults: patches are not merged."""
    defaults = {"image_mean": HALF, "image_std": HALF, "temporal_patch_size": 1, "merge_size": 1}
    return Qwen2VlProcessor.of({**defaults, **settings}, max_tokens)


def _siglip(settings: Mapping[str, Any], max_tokens: int) -> ClipProcessor:
    """Resizes to a `size`; nothing is cut."""
    defaults = {"size": {"height": 224, "width": 224}}
    return ClipProcessor.of({**_HALF, **defaults, **settings, "do_center_crop": False}, max_tokens)


def _vit(settings: Mapping[str, Any], max_tokens: int) -> ClipProcessor:
    """Resizes to a `size`, which is that of a square if it is one number; nothing is cut."""
    defaults = {"size": 224, "resample": Image.Resampling.BILINEAR, "do_center_crop": False}
    return _square({**_HALF, **defaults, **settings}, max_tokens)


def _deit(settings: Mapping[str, Any], max_tokens: int) -> ClipProcessor:
    """As `_vit`, and cuts out the center."""
    return _square({**_HALF, "size": 256, **settings}, max_tokens)


def _square(settings: Mapping[str, Any], max_tokens: int) -> ClipProcessor:
    height, width = sides(settings["size"])
    size = {"height": height, "width": width}
    return ClipProcessor.of({**settings, "size": size}, max_tokens)


_PROCESSORS: dict[str, Callable[[Mapping[str, Any], int], ImageProcessor]] = {
    "AriaImageProcessor": AriaProcessor.of,
    "CLIPImageProcessor": ClipProcessor.of,
    "Cohere2VisionImageProcessor": GridProcessor.cohere2_vision,
    "CohereCompassImageProcessor": Qwen2VlProcessor.of,
    "DeepseekOCRForCausalLM": DeepseekOcr2Processor.first,
    "DeepseekOcr2ImageProcessor": DeepseekOcr2Processor.of,
    "DeepseekVLHybridImageProcessor": DeepseekVlHybridProcessor.of,
    "DeepseekVLImageProcessor": DeepseekVlProcessor.of,
    "DeiTImageProcessor": _deit,
    "DonutImageProcessor": DonutProcessor.of,
    "Ernie4_5_VLMoeImageProcessor": _ernie4_5_vl,
    "Gemma3ImageProcessor": Gemma3Processor.of,
    "Gemma4ImageProcessor": Gemma4Processor.of,
    "Gemma4UnifiedImageProcessor": Gemma4Processor.unified,
    "Glm46VImageProcessor": _glm4v,
    "Glm4vImageProcessor": _glm4v,
    "GotOcr2ImageProcessor": GridProcessor.got_ocr2,
    "GraniteDoclingImageProcessor": GraniteDoclingProcessor.of,
    "Idefics2ImageProcessor": QuarteredProcessor.of,
    "GotOcr2Processor": GridProcessor.got_ocr2_whole,
    "Idefics3ImageProcessor": Idefics3Processor.of,
    "InternVLChatModel": GridProcessor.internvl_chat,
    "JanusImageProcessor": DeepseekVlProcessor.of,
    "KimiK25VisionProcessor": PaddedProcessor.kimi_k25_published,
    "KimiVLImageProcessor": PaddedProcessor.kimi_vl,
    "Kimi_K25ImageProcessor": PaddedProcessor.kimi_k25,
    "Lfm2VlImageProcessor": Lfm2VlProcessor.of,
    "Llama4ImageProcessor": Llama4Processor.of,
    "LlavaNextImageProcessor": LlavaNextProcessor.of,
    "LlavaOnevisionImageProcessor": LlavaNextProcessor.onevision,
    "MiniCPMOcrImageProcessor": SlicedProcessor.ocr,
    "MiniCPMV4_6ImageProcessor": SlicedProcessor.of,
    "MuseGlimmerImageProcessor": MuseGlimmerProcessor.of,
    "NemotronH_Omni_Reasoning_V3ImageProcessor": NemotronOmniProcessor.of,
    "PaddleOCRVLImageProcessor": _paddleocr_vl,
    "Phi4MultimodalImageProcessor": Phi4Processor.of,
    "PixtralImageProcessor": PixtralProcessor.of,
    "Qwen2VLImageProcessor": Qwen2VlProcessor.of,
    "Siglip2ImageProcessor": Siglip2Processor.of,
    "SiglipImageProcessor": _siglip,
    "SmolVLMImageProcessor": Idefics3Processor.of,
    "ViTImageProcessor": _vit,
    "VideoLlama3ImageProcessor": _video_llama3,
    "VideoLlavaImageProcessor": ClipProcessor.of,
}
# Of models whose own code reads images by the settings of the model.
_BY_MODEL = {"deepseek_vl_v2": "DeepseekOCRForCausalLM", "internvl_chat": "InternVLChatModel"}
# Of models that use another model's image processor in their own way.
_OF_MODEL = {"got_ocr2": "GotOcr2Processor"}
# Settings of the whole processor that replace those of its image processor.
_BESIDE = {"PixtralImageProcessor": ("patch_size", "spatial_merge_size")}
# Settings of the model's vision tower that files of its image processor do not have.
_OF_TOWER = {"AriaImageProcessor": ("patch_size",), "Idefics2ImageProcessor": ("patch_size",)}
KNOWN = tuple(_PROCESSORS)
"""Types of processors, as `image_processor_type` names them, with or without `Fast` behind."""
