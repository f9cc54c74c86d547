"""The vision transformers of Idefics2 and Aria: SigLIP's layers on patches of images of any size.

Weights: those of nearest_siglip.py.
"""

from __future__ import annotations

import numpy as np

from pagemill.models.base import Config
from pagemill.models.vision.nearest_siglip import NearestSiglipTower

_LAST = np.float32(1.0 - 1e-6)  # the end of a line, of which 1 is behind


class Idefics2VisionTower(NearestSiglipTower):
    """That of Idefics2."""

    kinds = ("idefics2_vision", "idefics2")
    defaults = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 32,
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config, merge=1)

    def begins(self, cells: np.ndarray, size: int) -> np.ndarray:
        at = cells.astype(np.float32) * (np.float32(1) / np.float32(size))
        return np.minimum(at, _LAST)


class AriaVisionTower(Idefics2VisionTower):
    """That of Aria, which is Idefics3's."""

    kinds = ("idefics3_vision",)
    defaults = {
        **Idefics2VisionTower.defaults,
        "hidden_size": 1152,
        "num_attention_heads": 16,
    }
