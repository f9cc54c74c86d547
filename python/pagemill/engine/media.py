"""Images of a prompt: a placeholder token each, which becomes as many tokens as embeddings.

prompt = place_images(RenderedPrompt.of([1, 32000, 5]), [pixels], built.encoder)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pagemill.engine.outputs import EngineError
from pagemill.inputs.rendered_prompt import MediaFeatures, MediaItem, RenderedPrompt
from pagemill.models.base import Image, MediaTraits
from pagemill.runner.build import BuiltEncoder, media_model
from pagemill.weights.source import ModelSource

ImageInput = np.ndarray | tuple[np.ndarray, Sequence[int]]
"""Pixels [3, height, width], or patches [patches, channels] and how many there are in time, height
and width, as the model's processor gives them."""


class ImageFeatures(NamedTuple):
    """What front ends need of a model's encoder: its traits, and what makes its input."""

    traits: MediaTraits
    features: Callable[[Image], MediaFeatures]

    @classmethod
    def of(cls, source: ModelSource) -> ImageFeatures | None:
        """Those of the model of `source`, by its configuration alone; None if it takes no images.

        Raises:
            ModelConfigError: the model is not known.
        """
        model = media_model(source)
        if model is None:
            return None
        assert model.traits.media is not None
        return cls(model.traits.media, model.features)


def place_images(
    prompt: RenderedPrompt,
    images: Sequence[ImageInput],
    encoder: BuiltEncoder | ImageFeatures | None,
) -> RenderedPrompt:
    """The prompt with as many placeholders for each image as it has embeddings, and the images.

    Args:
        prompt: text with one placeholder token for each image.
        images: of each, pixels [3, height, width] normalized as the model wants them, or patches
            and their grid.
        encoder: the model's; None if it has none.

    Raises:
        EngineError: INVALID_ARGUMENT if the model takes no images, there are more or fewer than
            placeholders, or one has the wrong size.
    """
    if encoder is None:
        if images:
            raise _refusal(f"this model takes no images, but the prompt has {len(images)}")
        return prompt
    traits = encoder.traits
    num_placeholders = int(np.count_nonzero(prompt.token_ids == traits.placeholder))
    if num_placeholders != len(images):
        raise _refusal(
            f"the prompt has {num_placeholders} placeholders (token {traits.placeholder}) for"
            f" {len(images)} images: each image needs one"
        )
    if not images:
        return prompt
    expanded: list[int] = []
    items: list[MediaItem] = []
    for token in prompt.token_ids.tolist():
        if token != traits.placeholder:
            expanded.append(token)
            continue
        features = _features(images[len(items)], len(items), encoder)
        items.append(MediaItem(_content_id(features), len(expanded), features))
        expanded += [token] * features.tokens
    return RenderedPrompt(np.array(expanded, np.int32), tuple(items))


def _features(
    image: ImageInput, index: int, encoder: BuiltEncoder | ImageFeatures
) -> MediaFeatures:
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
    # The KV cache finds blocks by it: colliding contents would mix up images.
    # KV depends on positions as well, which equal patches have others of in another grid.
    digest = hashlib.sha256(features.rows.tobytes())
    if features.positions is not None:
        digest.update(features.positions.rows.tobytes())
        digest.update(features.positions.tokens.tobytes())
        digest.update(features.positions.next.to_bytes(4, "little"))
    return digest.hexdigest()


def _refusal(message: str) -> EngineError:
    return EngineError("INVALID_ARGUMENT", message, "images")
