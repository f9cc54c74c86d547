"""Videos of ERNIE 4.5 VL through the engine: its tokens are those of `transformers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pagemill.inputs.prepared_media import FrameTimes

from tests.media.ernie_vl_models import (
    CHANNELS,
    IMAGE,
    VIDEO,
    VIDEO_END,
    VIDEO_START,
    VIDEO_TOKEN,
    ernie_vl,
    image,
)
from tests.media.media_model import MediaTestModel, encoded, media_prompts, text
from tests.media.video_models import Video


def video(seed: int, frames: int, height: int, width: int) -> Video:
    """`frames` of height x width patches, two a second."""
    values = np.random.default_rng(seed).normal(size=(frames * height * width, CHANNELS))
    times = FrameTimes(tuple(frame / 2 for frame in range(frames)), 2.0)
    return values.astype(np.float32), (frames, height, width), times


# No longer in time than they are wide: then the text behind has the positions of `transformers`.
PAIR, WIDE, TALL = video(1, 2, 4, 6), video(2, 6, 4, 10), video(3, 4, 10, 4)
PICTURE = image(4, 4, 6)
PROMPTS = media_prompts(VIDEO)
VIDEOS = [[PAIR, WIDE], [TALL], []]


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    model = ernie_vl(tmp_path_factory.mktemp("ernie_vl"))
    model.argument = "videos"
    return model


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_videos(model: MediaTestModel, executor: str) -> None:
    with model.llm(executor=executor) as llm:
        outputs = model.generate(llm, PROMPTS, VIDEOS, logprobs=0)
        # Of two frames each; and both ends of a video, which are encoded once.
        assert encoded(llm) == 1 + 3 + 2 + 2
    for output, own in zip(outputs, VIDEOS, strict=True):
        model.check(output, own)
    pair, wide = ([VIDEO_START, *[VIDEO_TOKEN] * n, VIDEO_END] for n in (6, 30))
    expected = text(1, 3) + pair + text(2, 5) + wide + text(3, 2)
    assert outputs[0].prompt_token_ids == expected


def test_ranks(model: MediaTestModel) -> None:
    model.check_all(PROMPTS, VIDEOS, tensor_parallel_size=2)


@pytest.mark.parametrize("step", [16, 19, 27])
def test_images_and_videos(model: MediaTestModel, step: int) -> None:
    """In one prompt, whose step may end inside of each."""
    prompt = text(1, 8) + IMAGE + text(2, 3) + VIDEO + text(3, 20)
    with model.llm(max_num_batched_tokens=step) as llm:
        (output,) = model.generate(llm, [prompt], [[WIDE]], images=[[PICTURE]], logprobs=0)
        assert encoded(llm) == 1 + 2 + 3 + 2
    model.check(output, [PICTURE, WIDE])


def test_prefixes_are_those_of_equal_videos(model: MediaTestModel) -> None:
    patches, grid, times = WIDE
    changed = patches.copy()
    changed[-1] += 1
    prompt = text(1, 10) + VIDEO + text(2, 40)
    with model.llm() as llm:
        cached: list[int] = []
        for values in (patches, changed, patches):
            (output,) = model.generate(llm, [prompt], [[(values, grid, times)]])
            model.check(output, [(values, grid, times)])
            cached.append(output.num_cached_tokens)
        assert encoded(llm) == 3 + 1 + 2, "the frames of both are equal but the last"
    # The third pair begins behind 11 tokens of text and 20 of frames.
    assert cached == [0, 16, 80]


def test_limits_of_kinds_are_apart(model: MediaTestModel) -> None:
    """Either encoder is left out."""
    with model.llm(limit_mm_per_prompt={"image": 0}) as llm:
        (output,) = model.generate(llm, [VIDEO + text(1, 4)], [[PAIR]])
        model.check(output, [PAIR])
        model.check_refused(llm, [*IMAGE, *VIDEO], [PAIR, PAIR], "for 2 videos")
    with model.llm(limit_mm_per_prompt={"video": 0}) as llm:
        (output,) = model.generate(llm, [IMAGE + text(1, 4)], [[]], images=[[PICTURE]])
        model.check(output, [PICTURE])
        model.check_refused(llm, VIDEO, [PAIR], "1 videos; at most 0")


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (video(1, 3, 4, 6), "has pairs of frames, got 3 frames"),
        ((PAIR[0][:24], *PAIR[1:]), "must have 48 of them and the times of 2 frames"),
        ((PAIR[0][:30], (2, 3, 5), PAIR[2]), "two multiples of 2"),
        ((PAIR[0] * np.nan, *PAIR[1:]), "has pixels that are not finite"),
    ],
)
def test_videos_that_do_not_fit_are_refused(model: MediaTestModel, item: Any, why: str) -> None:
    with model.llm() as llm:
        model.check_refused(llm, VIDEO, [item], why)


def test_published_templates_write_another_placeholder(model: MediaTestModel) -> None:
    template = (
        "{% for part in messages[0].content %}{% if part.type == 'video' %}"
        "<|VIDEO_START|><|video@placeholder|><|VIDEO_END|>{% else %}{{ part.text }}{% endif %}"
        "{% endfor %}"
    )
    parts = [{"type": "video", "video": PAIR}, {"type": "text", "text": "t20"}]
    with model.llm(chat_template=template) as llm:
        (output,) = llm.chat([{"role": "user", "content": parts}], max_tokens=1)
    assert output.prompt_token_ids == [VIDEO_START, *[VIDEO_TOKEN] * 6, VIDEO_END, 20]
