"""Turns in made-up sound: where they begin and end, and what is none."""

from __future__ import annotations

import numpy as np
import pytest

from pagemill.server.protocol.realtime_audio import TurnDetection
from pagemill.server.realtime.turn_detector import Edge, TurnDetector

RATE = 8_000
FRAME = RATE // 50


def quiet(seconds: float, level: float = 3.0) -> np.ndarray:
    """Noise; `level` is of int16, 3 is -81 dB."""
    noise = np.random.default_rng(1).normal(size=int(seconds * RATE)) * level
    return noise.astype(np.int16)


def speech(seconds: float, level: float = 3000.0) -> np.ndarray:
    """A voice with pauses: syllables of 0.2 s and, between them, 0.05 s of quiet."""
    at = np.arange(int(seconds * RATE)) / RATE
    voice = np.sin(2 * np.pi * 180 * at) * level
    return np.where(at % 0.25 < 0.2, voice, 0).astype(np.int16) + quiet(seconds)


def detector(max_s: float = 60.0, **options: float) -> TurnDetector:
    return TurnDetector(TurnDetection(**options), RATE, int(max_s * RATE))  # pyright: ignore[reportArgumentType]


def seconds(edges: list[Edge]) -> list[tuple[float, bool]]:
    return [(edge.at / RATE, edge.begins) for edge in edges]


@pytest.mark.parametrize("portion", [1, 7, 160, 1000, 100_000])
def test_turns_do_not_depend_on_how_sound_comes(portion: int) -> None:
    sound = np.concatenate([quiet(1), speech(1), quiet(1), speech(0.7), quiet(2)])
    found = detector()
    edges: list[Edge] = []
    for at in range(0, len(sound), portion):
        edges += found.feed(sound[at : at + portion])
    # Each turn begins 0.3 s before it is loud, and ends with 0.5 s of quiet.
    assert seconds(edges) == [(0.7, True), (2.46, False), (2.7, True), (4.2, False)]


def test_paddings() -> None:
    sound = np.concatenate([quiet(1), speech(1), quiet(1)])
    edges = detector(prefix_padding_ms=0, silence_duration_ms=200).feed(sound)
    assert seconds(edges) == [(1.0, True), (2.16, False)]
    # A pause is no end if it is shorter, and what comes before the first sample is not there.
    sound = np.concatenate([speech(1), quiet(0.4), speech(1), quiet(1)])
    assert seconds(detector().feed(sound)) == [(0.0, True), (2.86, False)]


def test_a_click_is_no_turn() -> None:
    click = np.concatenate([quiet(1), speech(0.04), quiet(1)])
    assert not detector().feed(click)


def test_quiet_speech_is_found_by_a_low_threshold_only() -> None:
    sound = np.concatenate([quiet(1), speech(1, level=150), quiet(1)])
    assert not detector().feed(sound)
    assert len(detector(threshold=0.2).feed(sound)) == 2
    assert not detector(threshold=1).feed(np.concatenate([quiet(1), speech(1, level=1000)]))


def test_noise_is_followed() -> None:
    noisy = detector()
    noisy.feed(quiet(1))
    edges = noisy.feed(quiet(20, level=600))  # a fan of -35 dB begins
    assert [edge.begins for edge in edges] == [True, False]
    assert edges[-1].at < 5 * RATE
    found = noisy.feed(np.concatenate([speech(1, level=9000) + quiet(1, 600), quiet(2, 600)]))
    assert [edge.begins for edge in found] == [True, False]
    assert found[1].at - found[0].at < 2 * RATE


def test_an_offset_is_not_loud() -> None:
    assert not detector().feed(quiet(2) + np.int16(5000))
    assert not detector().feed(np.zeros(RATE, np.int16))


def test_a_turn_has_a_longest_length() -> None:
    edges = detector(max_s=1, prefix_padding_ms=0).feed(np.concatenate([speech(2.5), quiet(1)]))
    assert [edge.begins for edge in edges] == [True, False] * 3
    assert edges[1].at == RATE
    assert all(b.at >= a.at for a, b in zip(edges, edges[1:], strict=False))
    assert all(b.at - a.at <= RATE for a, b in zip(edges[::2], edges[1::2], strict=True))


def test_what_is_needed() -> None:
    found = detector()
    found.feed(quiet(2))
    assert found.needed_from == 2 * RATE - int(0.3 * RATE) - 3 * FRAME
    (begin,) = found.feed(speech(0.4))
    assert found.needed_from == begin.at
    found.restart(5 * RATE)
    assert found.needed_from == 5 * RATE
    (begin,) = found.feed(speech(1))
    assert begin.at == 5 * RATE
