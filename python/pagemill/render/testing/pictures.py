"""Pictures, settings of processors that divide images into tiles, and what opens settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pagemill.render.media.processors import ImageProcessor, open_processor

IDEFICS3 = {
    "image_processor_type": "Idefics3ImageProcessor",
    "size": {"longest_edge": 64},
    "max_image_size": {"longest_edge": 16},
}
INTERNVL = {
    "image_processor_type": "GotOcr2ImageProcessor",
    "size": {"height": 16, "width": 16},
    "crop_to_patches": False,
}
COHERE2_VISION = {"image_processor_type": "Cohere2VisionImageProcessorFast", "size": 16}
LLAMA4 = {"image_processor_type": "Llama4ImageProcessorFast", "size": 16, "max_patches": 6}
LLAVA_NEXT = {
    "image_processor_type": "LlavaNextImageProcessor",
    "size": {"shortest_edge": 16},
    "crop_size": {"height": 16, "width": 16},
    "image_grid_pinpoints": [[16, 32], [32, 16], [32, 32], [48, 16], [16, 48]],
}
LLAVA_ONEVISION = {
    "image_processor_type": "LlavaOnevisionImageProcessor",
    "size": {"height": 16, "width": 16},
    "image_grid_pinpoints": [[16, 32], [32, 16], [32, 32], [48, 16], [16, 48], [48, 48]],
}


def picture(width: int, height: int) -> Image.Image:
    """Noise."""
    values = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(values)


def processor(folder: Path, max_tokens: int = 10**6, **settings: Any) -> ImageProcessor:
    """What opens `settings`."""
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return open_processor(folder, max_tokens)
