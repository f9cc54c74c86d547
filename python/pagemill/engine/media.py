"""Images of a prompt: a placeholder token each, which becomes as many tokens as embeddings.

prompt = place_images(RenderedPrompt.of([1, 32000, 5]), [pixels], built.encoder, encode)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pagemill.engine.outputs import EngineError
from pagemill.inputs.rendered_prompt import MediaFeatures, MediaItem, RenderedPrompt
from pagemill.models.base import Image, MediaTraits, TiledModel
from pagemill.runner.build import BuiltEncoder, media_model
from pagemill.weights.source import ModelSource

ImageInput = np.ndarray | tuple[np.ndarray, Sequence[int]]
"""Pixels [3, height, width], or tiles [tiles, 3, height, width]; or patches [patches, channels], or
tiles, and how many there are in time, height and width; as the model's processor gives them."""


class ImageFeatures(NamedTuple):
    """What front ends need of a model's encoder: its traits, what makes its input, and what divides
    images into tiles."""

    traits: MediaTraits
    features: Callable[[Image], MediaFeatures]
    layout: Callable[[Image], Sequence[Image | str]] | None

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
        layout = model.layout if isinstance(model, TiledModel) else None
        return cls(model.traits.media, model.features, layout)


def place_images(
    prompt: RenderedPrompt,
    images: Sequence[ImageInput],
    encoder: BuiltEncoder | ImageFeatures | None,
    encode: Callable[[str], Sequence[int]],
) -> RenderedPrompt:
    """The prompt with as many placeholders for each image as it has embeddings, and the images; or
    their tiles and the texts between these, if the model has tiles.

    Args:
        prompt: text with one placeholder token for each image.
        images: of each, pixels [3, height, width] or tiles of it normalized as the model wants
            them, or patches or tiles and their grid.
        encoder: the model's; None if it has none.
        encode: the token ids of a text with control tokens, and no others around it.

    Raises:
        EngineError: INVALID_ARGUMENT if the model takes no images, there are more or fewer than
            placeholders, or one has the wrong size; or the tokenizer lacks the ends of rows.
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
    rest = iter(enumerate(images))
    ends = _row_ends(traits, encode)
    for token in prompt.token_ids.tolist():
        if token != traits.placeholder:
            expanded.append(token)
            continue
        for part in _parts(*next(rest), encoder):
            if isinstance(part, str):
                expanded += encode(part)
                continue
            items.append(MediaItem(_content_id(part), len(expanded), part))
            expanded += _tokens(part, token, ends)
    return RenderedPrompt(np.array(expanded, np.int32), tuple(items))


def _parts(
    index: int, image: ImageInput, encoder: BuiltEncoder | ImageFeatures
) -> list[MediaFeatures | str]:
    """Items of an image, and texts between them."""
    pixels, grid = image if isinstance(image, tuple) else (image, None)
    try:
        sizes = None if grid is None else _sizes(grid)
        whole = Image(np.asarray(pixels, np.float32), sizes)
        layout = (whole,) if encoder.layout is None else encoder.layout(whole)
        parts = [each if isinstance(each, str) else encoder.features(each) for each in layout]
    except ValueError as error:
        raise _refusal(f"image {index}: {error}") from error
    if not all(isinstance(part, str) or np.isfinite(part.rows).all() for part in parts):
        raise _refusal(f"image {index} has pixels that are not finite")
    return parts


def _row_ends(
    traits: MediaTraits, encode: Callable[[str], Sequence[int]]
) -> tuple[int, int] | None:
    """The token ids of `MediaTraits.row_ends`."""
    if traits.row_ends is None:
        return None
    between, last = (list(encode(name)) for name in traits.row_ends)
    if len(between) != 1 or len(last) != 1:
        raise _refusal(f"{' or '.join(traits.row_ends)} is no token of this model's tokenizer")
    return between[0], last[0]


def _tokens(item: MediaFeatures, placeholder: int, ends: tuple[int, int] | None) -> list[int]:
    """Placeholders of an item, and the ends of its rows."""
    if ends is None:
        return [placeholder] * item.tokens
    between, last = ends
    row = [placeholder] * item.row_tokens
    rows = item.tokens // (item.row_tokens + 1)
    return (row + [between]) * (rows - 1) + row + [last]


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
    if features.row_tokens:
        digest.update(features.row_tokens.to_bytes(4, "little"))
    return digest.hexdigest()


def _refusal(message: str) -> EngineError:
    return EngineError("INVALID_ARGUMENT", message, "images")
