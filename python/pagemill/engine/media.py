"""Images of a prompt: a placeholder token each, which becomes as many tokens as embeddings.

expanded, items = place_images([1, 32000, 5], [pixels], built.encoder)
engine.submit(..., **native_media(items))
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagemill.engine.outputs import EngineError
from pagemill.models.base import Image, MediaFeatures
from pagemill.runner.build import BuiltEncoder

ImageInput = np.ndarray | tuple[np.ndarray, Sequence[int]]
"""Pixels [3, height, width], or patches [patches, channels] and how many there are in time, height
and width, as the model's processor gives them."""


@dataclass(frozen=True, slots=True)
class MediaItem:
    """Tokens of the prompt, from `first_token` on, that stand for `features`. Items of equal
    `content_id` are encoded once, and have equal positions."""

    content_id: str
    first_token: int
    features: MediaFeatures

    @property
    def native(self) -> tuple[str, int, int]:
        """The item without its features, as the native `submit` takes it."""
        return self.content_id, self.first_token, self.features.tokens


def native_media(items: Sequence[MediaItem]) -> dict[str, Any]:
    """The arguments of the native `submit` that say what the items of a request are."""
    positions = [item.features.positions for item in items]
    return {
        "media": [item.native for item in items],
        "media_features": [item.features.rows for item in items],
        "media_positions": [(p.rows, p.tokens, p.next) for p in positions if p is not None],
    }


def place_images(
    token_ids: Sequence[int], images: Sequence[ImageInput], encoder: BuiltEncoder | None
) -> tuple[list[int], list[MediaItem]]:
    """The prompt with as many placeholders for each image as it has embeddings, and the images.

    Args:
        token_ids: the prompt, with one placeholder token for each image.
        images: of each, pixels [3, height, width] normalized as the model wants them, or patches
            and their grid.
        encoder: the model's; None if it has none.

    Raises:
        EngineError: INVALID_ARGUMENT if the model takes no images, there are more or fewer than
            placeholders, or one has the wrong size.
    """
    ids = list(token_ids)
    if encoder is None:
        if images:
            raise _refusal(f"this model takes no images, but the prompt has {len(images)}")
        return ids, []
    traits = encoder.traits
    num_placeholders = ids.count(traits.placeholder)
    if num_placeholders != len(images):
        raise _refusal(
            f"the prompt has {num_placeholders} placeholders (token {traits.placeholder}) for"
            f" {len(images)} images: each image needs one"
        )
    expanded: list[int] = []
    items: list[MediaItem] = []
    for token in ids:
        if token != traits.placeholder:
            expanded.append(token)
            continue
        features = _features(images[len(items)], len(items), encoder)
        items.append(MediaItem(_content_id(features), len(expanded), features))
        expanded += [token] * features.tokens
    return expanded, items


def _features(image: ImageInput, index: int, encoder: BuiltEncoder) -> MediaFeatures:
    pixels, grid = image if isinstance(image, tuple) else (image, None)
    try:
        sizes = None if grid is None else _sizes(grid)
        features = encoder.features(Image(np.asarray(pixels, np.float32), sizes))
    except ValueError as error:
        raise _refusal(f"image {index}: {error}") from error
    if not np.isfinite(features.rows).all():
        raise _refusal(f"image {index} has pixels that are not finite")
    return features


def _sizes(grid: Sequence[int]) -> tuple[int, int, int]:
    time, height, width = map(int, grid)
    return time, height, width


def _content_id(features: MediaFeatures) -> str:
    # The KV cache finds blocks by it: contents that can be made to collide would mix up images.
    # KV depends on positions as well, which equal patches have others of in another grid.
    digest = hashlib.sha256(features.rows.tobytes())
    if features.positions is not None:
        digest.update(features.positions.rows.tobytes())
        digest.update(features.positions.tokens.tobytes())
        digest.update(features.positions.next.to_bytes(4, "little"))
    return digest.hexdigest()


def _refusal(message: str) -> EngineError:
    return EngineError("INVALID_ARGUMENT", message, "images")
