"""Images of a prompt: a placeholder token each, which becomes as many tokens as embeddings.

expanded, items = place_images([1, 32000, 5], [pixels], built.encoder)
engine.submit(..., **media_fields(items))
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagemill.engine.outputs import EngineError
from pagemill.runner.build import BuiltEncoder


@dataclass(frozen=True, slots=True)
class MediaItem:
    """`num_tokens` tokens of the prompt, from `first_token` on, stand for `features`, f32 [rows,
    channels]. Items of equal `content_id` are encoded once."""

    content_id: str
    first_token: int
    num_tokens: int
    features: np.ndarray


def place_images(
    token_ids: Sequence[int], images: Sequence[np.ndarray], encoder: BuiltEncoder | None
) -> tuple[list[int], list[MediaItem]]:
    """The prompt with as many placeholders for each image as it has embeddings, and the images.

    Args:
        token_ids: the prompt, with one placeholder token for each image.
        images: pixels [3, height, width] of each, normalized as the model wants them.
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
        items.append(MediaItem(_content_id(features), len(expanded), traits.tokens, features))
        expanded += [token] * traits.tokens
    return expanded, items


def media_fields(items: Sequence[MediaItem]) -> dict[str, Any]:
    """The arguments of the native `submit` for these items."""
    return {
        "media": [(item.content_id, item.first_token, item.num_tokens) for item in items],
        "media_features": [item.features for item in items],
    }


def _features(image: np.ndarray, index: int, encoder: BuiltEncoder) -> np.ndarray:
    try:
        features = encoder.features(np.asarray(image, np.float32))
    except ValueError as error:
        raise _refusal(f"image {index}: {error}") from error
    if not np.isfinite(features).all():
        raise _refusal(f"image {index} has pixels that are not finite")
    return features


def _content_id(features: np.ndarray) -> str:
    # The KV cache finds blocks by it: contents that can be made to collide would mix up images.
    return hashlib.sha256(features.tobytes()).hexdigest()


def _refusal(message: str) -> EngineError:
    return EngineError("INVALID_ARGUMENT", message, "images")
