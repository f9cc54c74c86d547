"""The sound of videos of Qwen2.5-Omni's thinker through the engine: its tokens, in the order of
`transformers`' processor, are those of `transformers`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pagemill.engine.outputs import EngineError
from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.models.audio.log_mel import HOP
from pagemill.models.base import SoundItem
from pagemill.models.multimodal.video_sound import in_chunks
from transformers.models.qwen2_5_omni.processing_qwen2_5_omni import Qwen2_5OmniProcessor

from tests.media.audio_models import audio
from tests.media.media_model import MediaTestModel, encoded, text
from tests.media.omni_models import AUDIO, AUDIO_ID, IMAGE, VIDEO, VIDEO_ID, omni_model
from tests.media.qwen_vl_models import image
from tests.media.video_models import video

WORDS = {AUDIO[0]: "<|audio_bos|>", AUDIO[2]: "<|audio_eos|>"}
PER_SECOND, CHUNK = 13, 3 * 13
FRAME = 4 * HOP  # the samples of a token of sound, about


def heard(frames: int, tokens: int, rate: float = 2.0, seed: int = 1) -> tuple[Any, ...]:
    """A video of so many pairs of frames, 26 / `rate` positions apart, and of sound."""
    return (*video(seed, frames, 4, 4, rate=rate), audio(seed, tokens * FRAME))


# Pairs are at 0, 13, 26; 39, 52.
LONGER, SHORTER = heard(5, 57), heard(5, 30, seed=2)
ALIKE, TAIL = heard(4, 45, rate=3.0, seed=3), heard(1, 80, seed=4)
ALL = {"longer": LONGER, "shorter": SHORTER, "alike": ALIKE, "tail": TAIL}


@pytest.fixture(scope="module", name="omni")
def _omni(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    model = omni_model("qwen2_5_omni", tmp_path_factory.mktemp("omni"), WORDS)
    model.argument = "videos"
    return model


def expanded(item: tuple[Any, ...]) -> list[int]:
    """What the processor of `transformers` makes of a video's placeholder."""
    _, grid, times, samples = item
    frames = -(-len(samples) // HOP)
    tokens = ((frames - 1) // 2 + 1 - 2) // 2 + 1
    stub = SimpleNamespace(
        video_processor=SimpleNamespace(merge_size=2),
        audio_bos_token="b",
        audio_eos_token="e",
        video_token="v",
        audio_token="a",
    )
    stub.get_chunked_index = Qwen2_5OmniProcessor.get_chunked_index.__get__(stub)
    videos = {"video_grid_thw": np.array([grid]), "video_second_per_grid": [2 / times.rate]}
    seconds = {"position_id_per_seconds": PER_SECOND, "seconds_per_chunk": CHUNK / PER_SECOND}
    written = Qwen2_5OmniProcessor.replace_video_with_audio_token(
        stub, videos, 0, {"num_audio_tokens": [tokens]}, 0, **seconds
    )
    ids = {"b": AUDIO[0], "e": AUDIO[2], "v": VIDEO_ID, "a": AUDIO_ID}
    return [ids[letter] for letter in written]


@pytest.mark.parametrize("item", ALL.values(), ids=ALL)
@pytest.mark.parametrize("options", [{}, {"executor": "torch"}, {"max_num_batched_tokens": 23}])
def test_tokens(omni: MediaTestModel, item: tuple[Any, ...], options: dict[str, Any]) -> None:
    prompt = text(1, 5) + VIDEO + text(2, 9)
    with omni.llm(**options) as llm:
        (output,) = omni.generate(llm, [prompt], [[item]], logprobs=0)
    omni.check(output, [item])
    start, _, end = VIDEO
    assert output.prompt_token_ids == text(1, 5) + [start, *expanded(item), end] + text(2, 9)


def test_beside_an_image_and_another_video(omni: MediaTestModel) -> None:
    """Of one prompt; all parts of sound are items."""
    picture = image(4, 4, 6)
    prompt = text(1, 3) + VIDEO + text(2, 4) + IMAGE + VIDEO + text(3, 5)
    with omni.llm(tensor_parallel_size=2, max_model_len=300) as llm:
        (output,) = omni.generate(llm, [prompt], [[LONGER, ALIKE]], images=[[picture]], logprobs=0)
        assert encoded(llm) == 1 + 5 + 4 + 19 + 15
    omni.check(output, [picture, LONGER, ALIKE])


def test_prefixes_are_those_of_equal_sound(omni: MediaTestModel) -> None:
    *frames, samples = LONGER
    changed = samples.copy()
    changed[-200:] = 0
    prompt = text(1, 10) + VIDEO + text(2, 20)
    with omni.llm() as llm:
        cached: list[int] = []
        for own in (samples, changed, samples):
            (output,) = omni.generate(llm, [prompt], [[(*frames, own)]])
            omni.check(output, [(*frames, own)])
            cached.append(output.num_cached_tokens)
    assert cached[0] == 0 and 64 <= cached[1] < cached[2]


def test_refusals(omni: MediaTestModel, tmp_path_factory: pytest.TempPathFactory) -> None:
    with omni.llm(limit_mm_per_prompt={"audio": 0}) as llm:
        omni.check_refused(llm, VIDEO, [LONGER], "video 0: the sound of videos is audio, of which")
        (output,) = omni.generate(llm, [VIDEO + text(1, 3)], [[LONGER[:3]]])
        omni.check(output, [LONGER[:3]])
    with omni.llm() as llm:
        omni.check_refused(llm, VIDEO, [(*LONGER[:3], np.zeros(9, np.float32))], "at least 321")
        with pytest.raises(EngineError, match="has `use_audio_in_video`, true or false") as error:
            llm.generate([text(1, 3)], mm_processor_kwargs={"max_pixels": 3})
        assert error.value.param == "mm_processor_kwargs"
    deaf = omni_model("qwen3_omni", tmp_path_factory.mktemp("deaf"), WORDS)
    deaf.argument = "videos"
    with deaf.llm() as llm:
        deaf.check_refused(llm, VIDEO, [LONGER], "this model does not hear the sound of videos")
        with pytest.raises(EngineError, match="leave out use_audio_in_video"):
            settings = {"use_audio_in_video": True}
            llm.generate([VIDEO], videos=[["film.mkv"]], mm_processor_kwargs=settings)


def item(tokens: int, following: int) -> MediaFeatures:
    rows = np.zeros((tokens, 1), np.float32)
    positions = GridPositions.in_order(np.zeros((tokens, 3), np.int32), tokens)
    return MediaFeatures(rows, tokens, GridPositions(positions.rows, positions.tokens, following))


def test_what_follows_counts_from_behind_all() -> None:
    """Sound behind the last frames counts from where it begins."""
    parts = in_chunks([item(4, 2), item(4, 2)], [0, 25], [item(5, 5)] * 21, 50)
    features = [part.features if isinstance(part, SoundItem) else part for part in parts]
    assert [isinstance(part, SoundItem) for part in parts] == [False] * 2 + [True] * 21
    steps = [each.positions.next for each in features if each.positions is not None]
    assert steps == [0, 0, *[5] * 21] and sum(steps) == 21 * 5
    (only,) = in_chunks([item(4, 2)], [3], [], 50)
    assert isinstance(only, MediaFeatures) and only.positions is not None
    assert only.positions.next == 4


def test_short_sound_far_from_frames_is_refused() -> None:
    """An item has at most 512 positions for each of its tokens (cc/step/media_item.h)."""
    sound = [item(50, 50)] * 11 + [item(1, 1)]
    assert in_chunks([item(4, 2)] * 2, [0, 560], sound, 50)
    with pytest.raises(
        ValueError, match="its sound has a part of 1 tokens at position 550 in time"
    ):
        in_chunks([item(4, 2)] * 2, [0, 700], sound, 50)
    with pytest.raises(
        ValueError, match="it has a part of 4 tokens at position 2104 .* 2047 at most"
    ):
        in_chunks([item(4, 2)] * 3, [0, 2101, 2102], [item(50, 50)], 50)
