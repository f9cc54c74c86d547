"""Prompts of a model that has a recording in front: others are refused before the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.native_requests import native_chunk, native_requests
from pagemill.engine.outputs import EngineError
from pagemill.engine.testing.fake_engine import FakeEngine, fake_bindings
from pagemill.inputs.rendered_prompt import InputChunk, MediaFeatures, MediaItem, RenderedPrompt

FRONT = 3
ANY = fake_bindings(FakeEngine())
RECORDINGS = replace(ANY, front_tokens=FRONT)


def prompt(*firsts: int, tokens: int = FRONT, behind: int = 2) -> RenderedPrompt:
    """With a recording that begins at each of `firsts`."""
    features = MediaFeatures(np.zeros((tokens, 1), np.float32), tokens)
    items = tuple(MediaItem(str(first), first, features) for first in firsts)
    length = max(firsts, default=0) + tokens + behind
    return RenderedPrompt(np.zeros(length, np.int32), items)


def native(bindings: object, rendered: RenderedPrompt) -> int:
    request = EngineRequest(rendered, (ChoiceRequest(1, None),))
    return len(list(native_requests(bindings, request)))  # type: ignore[arg-type]


def test_a_recording_in_front() -> None:
    assert native(RECORDINGS, prompt(0)) == 1


@pytest.mark.parametrize(
    ("rendered", "sentence"),
    [
        (prompt(), "has one recording, this one has 0"),
        (prompt(0, FRONT), "this one has 2"),
        (prompt(1), "begins at token 1"),
        (prompt(0, tokens=2), "that of this one has 2"),
        (prompt(0, behind=0), "tokens behind its recording"),
    ],
)
def test_other_prompts_are_for_other_models(rendered: RenderedPrompt, sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence) as error:
        native(RECORDINGS, rendered)
    assert error.value.code == "INVALID_ARGUMENT"
    assert "/v1/audio/transcriptions" in error.value.message
    assert native(ANY, rendered) == 1


def test_nothing_that_is_appended_has_another_one() -> None:
    with pytest.raises(EngineError, match="no other one"):
        native_chunk(RECORDINGS, InputChunk(prompt(0)))
    native_chunk(RECORDINGS, InputChunk(RenderedPrompt.of([1])))
    native_chunk(ANY, InputChunk(prompt(0)))
