"""Videos whose frames are images of one size, and checks of models that read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import FrameTimes

from tests.media.media_model import Item, MediaTestModel, encoded, text

Video = tuple[np.ndarray, tuple[int, int, int], FrameTimes]


def video(seed: int, frames: int, shape: tuple[int, int, int]) -> Video:
    """`frames` of `shape`, one a second."""
    pixels = np.random.default_rng(seed).normal(size=(frames, *shape))
    times = FrameTimes(tuple(map(float, range(frames))), 1.0)
    return pixels.astype(np.float32), (frames, 1, 1), times


def prompts(placeholder: Sequence[int]) -> list[list[int]]:
    """Of two videos, one video, one video, and none."""
    own = [*placeholder]
    return [
        text(1, 3) + own + text(2, 5) + own + text(3, 2),
        own + text(4, 4),
        text(5, 4) + own,
        text(6, 30),
    ]


def check_lengths(
    model: MediaTestModel,
    placeholder: Sequence[int],
    videos: Sequence[Sequence[Video]],
    items: int,
    **options: Any,
) -> None:
    """`videos` of `prompts`, whose frames are so many different `items`."""
    assert model.check_all(prompts(placeholder), videos, **options) == items, (
        "a frame is an item, and equal ones are encoded once"
    )


def check_beside_image(
    model: MediaTestModel, image: tuple[int, Item], video: tuple[int, Video], items: int, step: int
) -> None:
    """A placeholder and an item of each in one prompt, whose step may end inside of each."""
    prompt = text(1, 8) + [image[0]] + text(2, 3) + [video[0]] + text(3, 20)
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [[video[1]]], images=[[image[1]]], logprobs=0)
        assert encoded(llm) == items
    model.check(output, [image[1], video[1]])


def check_one_kind(
    model: MediaTestModel, image: tuple[int, Item], video: tuple[int, Video]
) -> None:
    """Videos of a model that takes no images, and the other way round; a placeholder and an item of
    each."""
    with model.llm(limit_mm_per_prompt={"image": 0}) as llm:
        (output,) = model.generate(llm, [[video[0], *text(1, 4)]], [[video[1]]])
        model.check(output, [video[1]])
    with model.llm(limit_mm_per_prompt={"video": 0}) as llm:
        (output,) = model.generate(llm, [[image[0], *text(1, 4)]], [[]], images=[[image[1]]])
        model.check(output, [image[1]])


def check_prefixes(model: MediaTestModel, placeholder: Sequence[int], video: Video) -> list[int]:
    """Of `video`, the same with another last frame, and `video` again: the cached tokens of
    each."""
    pixels, grid, times = video
    changed = pixels.copy()
    changed[-1] += 1
    prompt = text(1, 10) + [*placeholder] + text(2, 40)
    with model.llm() as llm:
        cached: list[int] = []
        for values in (pixels, changed, pixels):
            (output,) = model.generate(llm, [prompt], [[(values, grid, times)]])
            model.check(output, [(values, grid, times)])
            cached.append(output.num_cached_tokens)
        assert encoded(llm) == len(pixels) + 1, "the frames of both are equal but the last"
    return cached


def check_resized(
    model: MediaTestModel, placeholder: Sequence[int], side: int, settings: Mapping[str, Any]
) -> None:
    """Frames of other sizes become squares of `side`, by the processor's `settings`."""
    normalized = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    text_of_settings = json.dumps({**settings, **normalized})
    (model.path / "preprocessor_config.json").write_text(text_of_settings)
    prompt = [*placeholder, *text(1, 3)]
    colors = np.random.default_rng(6).integers(0, 256, (3, side, side, 3), np.uint8)
    pixels = (colors.transpose(0, 3, 1, 2) / np.float32(255) - 0.5) / np.float32(0.25)
    prepared = pixels.astype(np.float32), (3, 1, 1), FrameTimes((0.0, 0.5, 1.0), 2.0)
    larger = colors.repeat(2, 1).repeat(3, 2)
    with model.llm() as llm:
        (output,) = model.generate(llm, [prompt], [[colors]], logprobs=0)
        model.check(output, [prepared])
        (resized,) = model.generate(llm, [prompt], [[larger]], logprobs=0)
        assert resized.prompt_token_ids == output.prompt_token_ids


def check_refusals(model: MediaTestModel, placeholder: Sequence[int], video: Video) -> None:
    """A `video` of two frames of 16 x 16 pixels, and such that do not fit."""
    pixels, grid, times = video
    prompt = [*placeholder]
    narrow = pixels[..., :8]
    with model.llm() as llm:
        for own, message in (
            ((narrow, grid, times), r"frames \[frames, 3, 16, 16\] .* got \[2, 3, 16, 8\]"),
            ((pixels, (1, 2, 1), times), r"got \[2, 3, 16, 16\] and \(1, 2, 1\)"),
            ((pixels[:0], (0, 1, 1), times), r"got \[0, 3, 16, 16\]"),
            ((pixels * np.nan, grid, times), "video 0 has pixels that are not finite"),
        ):
            model.check_refused(llm, prompt, [own], message)
        with pytest.raises(EngineError, match="for 1 videos: each video needs one"):
            model.generate(llm, [text(1, 3)], [[video]])
        (output,) = model.generate(llm, [prompt + text(1, 3)], [[video]])
        model.check(output, [video])
