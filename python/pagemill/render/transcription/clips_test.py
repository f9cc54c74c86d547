"""Long audio is cut where it is quiet, and nothing of it is lost."""

from __future__ import annotations

import numpy as np
import pytest

from pagemill.render.transcription.clips import cut

RATE = 16_000


def noise(seconds: float) -> np.ndarray:
    return np.random.default_rng(3).uniform(-1, 1, int(seconds * RATE)).astype(np.float32)


def test_short_audio_is_one_clip() -> None:
    for samples in (noise(30), noise(0.01), noise(0)):
        (clip,) = cut(samples, RATE, 30)
        assert clip.samples is samples or np.array_equal(clip.samples, samples)
        assert (clip.start_s, clip.duration_s) == (0.0, len(samples) / RATE)


def test_models_without_a_limit_have_one_clip() -> None:
    assert len(cut(noise(95), RATE, None)) == 1


def test_a_clip_ends_where_it_is_quiet() -> None:
    samples = noise(70)
    samples[int(29.3 * RATE) : int(29.4 * RATE)] *= 0.01
    samples[int(28.0 * RATE) : int(28.5 * RATE)] = 0  # before what is searched
    clips = cut(samples, RATE, 30)
    assert clips[0].duration_s == pytest.approx(29.35)
    assert clips[1].start_s == pytest.approx(29.35)


def test_clips_are_all_of_the_audio() -> None:
    samples = noise(100)
    clips = cut(samples, RATE, 30)
    assert np.array_equal(np.concatenate([clip.samples for clip in clips]), samples)
    assert all(clip.duration_s <= 30 for clip in clips)
    assert all(clip.duration_s > 29 for clip in clips[:-1])
    starts = np.cumsum([0.0] + [clip.duration_s for clip in clips[:-1]])
    assert [clip.start_s for clip in clips] == pytest.approx(starts)
