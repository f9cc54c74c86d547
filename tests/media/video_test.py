"""Videos through the engine: tokens of EXAONE 4.5, Qwen-VL and GLM-V are those of
`transformers`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import FrameTimes, PreparedMedia
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.media.media_model import MediaTestModel, encoded
from tests.media.qwen_vl_models import image
from tests.media.video_models import (
    FAMILIES,
    IMAGE,
    VIDEO,
    expanded,
    placeholder,
    text_without_meaning,
    video,
    video_model,
)

# No longer in time than they are wide: then the text behind has the positions of `transformers`.
SHORT, WIDE, STILL = video(1, 2, 4, 6, 5.0), video(2, 3, 4, 10, 4.0), video(3, 1, 4, 4)
PICTURE = image(4, 4, 6)


words = text_without_meaning


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(family: str, tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return video_model(family, tmp_path_factory.mktemp(family))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_videos(model: MediaTestModel, family: str, executor: str) -> None:
    around = placeholder(family)
    prompts = [
        words(1, 3) + around + words(2, 5) + around + words(3, 2),
        around + words(4, 4),
        words(5, 30),
    ]
    videos = [[SHORT, WIDE], [STILL], []]
    with model.llm(executor=executor) as llm:
        outputs = model.generate(llm, prompts, videos, logprobs=0)
    first = words(1, 3) + expanded(model, family, SHORT) + words(2, 5)
    first += expanded(model, family, WIDE) + words(3, 2)
    assert outputs[0].prompt_token_ids == first
    for output, own in zip(outputs, videos, strict=True):
        model.check(output, own)


def test_images_and_videos(model: MediaTestModel, family: str) -> None:
    """In one prompt, whose step may end inside of each."""
    prompt = words(1, 8) + [IMAGE] + words(2, 3) + placeholder(family) + words(3, 20)
    for step in (16, 17, 23):
        with model.llm(max_num_batched_tokens=step) as llm:
            (output,) = model.generate(llm, [prompt], [[WIDE]], images=[[PICTURE]], logprobs=0)
            assert encoded(llm) == 4
        model.check(output, [PICTURE, WIDE])


def test_prefixes_are_those_of_equal_videos(model: MediaTestModel, family: str) -> None:
    patches, grid, times = WIDE
    changed = patches.copy()
    changed[-1] += 1
    prompt = words(1, 10) + placeholder(family) + words(2, 40)
    with model.llm() as llm:
        cached: list[int] = []
        for values in (patches, changed, patches):
            (output,) = model.generate(llm, [prompt], [[(values, grid, times)]])
            model.check(output, [(values, grid, times)])
            cached.append(output.num_cached_tokens)
        assert encoded(llm) == 4, "the frames of both are equal but the last"
    # Its last frames, of 10 tokens, begin behind 30 others; with texts between them behind more.
    # States of LFM3 and Qwen3.5 are kept where prompts end: the second one leaves one where it
    # branches.
    least = 0 if family.startswith(("lfm3", "qwen3_5")) else 16
    assert cached[0] == 0 and least <= cached[1] < 64 < cached[2]


def test_text_follows_all_positions_of_a_video(tmp_path: Path) -> None:
    """Positions in time are further than those of rows and columns."""
    long = video(7, 5, 4, 4, rate=0.5)
    for family, interval in (("qwen2_vl", 1), ("qwen2_5_vl", 16)):
        path = tmp_path / family
        path.mkdir()
        model = video_model(family, path)
        with model.llm() as llm:
            prompt = words(1, 3) + placeholder(family) + words(2, 5)
            (output,) = model.generate(llm, [prompt], [[long]], logprobs=0)
        before, behind = torch.arange(4).expand(3, 4), torch.arange(40).expand(3, 40)
        time, row, column = torch.meshgrid(*map(torch.arange, (5, 2, 2)), indexing="ij")
        own = torch.stack([time * interval, row, column]).reshape(3, -1)
        model.reference.positions = torch.cat(  # type: ignore[attr-defined]
            [before, 4 + own, 4 + 4 * interval + 1 + behind], dim=1
        )
        model.check(output, [long])


def test_ranks_get_the_positions_of_frames(tmp_path: Path) -> None:
    model = video_model("qwen2_vl", tmp_path)
    prompts = [words(1, 3) + placeholder("qwen2_vl") + words(3, 2), words(5, 30)]
    with model.llm(tensor_parallel_size=2, max_num_batched_tokens=13) as llm:
        outputs = model.generate(llm, prompts, [[WIDE], []], logprobs=0)
    for output, own in zip(outputs, ([WIDE], []), strict=True):
        model.check(output, own)


def test_videos_that_do_not_fit_are_refused(model: MediaTestModel, family: str) -> None:
    patches, grid, times = SHORT
    with model.llm() as llm:

        def refuse(message: str, *videos: object, prompt: list[int] | None = None) -> None:
            model.check_refused(llm, prompt or placeholder(family), videos, message)

        refuse(r"must have 72 of them and the times of 6 frames", (patches, (3, 4, 6), times))
        refuse("times of 4 frames, got 48 and 3", (patches, grid, FrameTimes((0, 1, 2), 1.0)))
        refuse("2 x 0 x 6 patches must have 0 of them", (patches[:0], (2, 0, 6), times))
        refuse("a rate above 0", (patches, grid, times._replace(rate=0.0)))
        endless = FrameTimes((*times.seconds[:-1], math.inf), times.rate)
        refuse("times that are finite", (patches, grid, endless))
        refuse("two multiples of 2", (patches[:30], (2, 3, 5), times))
        refuse("has pixels that are not finite", (patches * np.nan, grid, times))
        refuse("for 1 videos: each video needs one", SHORT, prompt=words(1, 3))
        refuse("for 0 videos", prompt=[VIDEO])
        (output,) = model.generate(llm, [placeholder(family) + words(1, 3)], [[SHORT]])
    model.check(output, [SHORT])


def test_limits_of_kinds_are_apart(model: MediaTestModel, family: str) -> None:
    prompt = placeholder(family)
    with model.llm(limit_mm_per_prompt={"image": 0}) as llm:
        (output,) = model.generate(llm, [prompt], [[SHORT]])
        model.check(output, [SHORT])
        with pytest.raises(EngineError, match="1 images; at most 0"):
            model.generate(llm, [[IMAGE]], [[]], images=[[PICTURE]])
    with (
        model.llm(limit_mm_per_prompt={"image": 0, "video": 0}) as llm,
        pytest.raises(EngineError, match="1 videos; at most 0"),
    ):
        model.generate(llm, [prompt], [[SHORT]])


@pytest.mark.parametrize(
    ("processor", "expected"),
    [("Glm4vProcessor", ["0", "0"]), ("Glm46VProcessor", ["0.0 seconds", "0.4 seconds"])],
)
def test_processors_of_glm_write_times(processor: str, expected: list[str], tmp_path: Path) -> None:
    """Of one type of configuration."""
    video_model("glm4v", tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"processor_class": processor}))
    (encoder,) = build(ModelSource.open(tmp_path), BuildOptions()).encoders
    assert encoder.layout is not None
    parts = encoder.layout(PreparedMedia("video", *SHORT))
    assert parts[2::3] == [f"<|end_of_image|>{text}" for text in expected]
