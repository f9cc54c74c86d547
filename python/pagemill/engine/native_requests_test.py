"""Prompts of models that have a recording or a text in front: others are refused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from pagemill.engine.encoder_front import MediaFront, TextFront
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.native_requests import native_chunk, native_requests
from pagemill.engine.outputs import EngineError
from pagemill.engine.testing.fake_engine import FakeEngine, fake_bindings
from pagemill.inputs.encoder_text import EncoderText
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.rendered_prompt import InputChunk, MediaFeatures, MediaItem, RenderedPrompt

FRONT = 3
ANY = fake_bindings(FakeEngine())
RECORDINGS = replace(ANY, front=MediaFront(FRONT, "audio"))
TEXT = EncoderText(50, placeholder=0, start=(1, 2), most_tokens=5, decoder_tokens=8)
TEXTS = replace(ANY, front=TextFront(TEXT))


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


class Listening:
    """Adapters of which that of audio has the id 7, and "sql", which changes encoders, the id 8."""

    on_demand = False

    def require_adapter(self, name: str) -> None:
        raise NotImplementedError

    def id_of(self, name: str) -> int:
        return {"sql": 8}[name]

    def id_for_media(self, kinds: Collection[str]) -> int:
        return 7 if "audio" in kinds else 0

    def media_id(self, content_id: str, adapter_id: int) -> str:
        return f"{content_id}/{adapter_id}" if adapter_id == 8 else content_id


@pytest.mark.parametrize(
    ("kinds", "named", "adapter"),
    [
        ([], "", 0),
        ([None], "", 0),
        (["image"], "", 0),
        (["audio"], "", 7),
        (["image", "audio"], "", 7),
        (["audio"], "sql", 8),
        ([], "sql", 8),
    ],
)
def test_the_adapter_is_the_named_one_or_that_of_media(
    kinds: list[MediaKind | None], named: str, adapter: int
) -> None:
    features = MediaFeatures(np.zeros((1, 1), np.float32), 1)
    items = tuple(MediaItem(str(at), at, features, kind) for at, kind in enumerate(kinds))
    rendered = RenderedPrompt(np.zeros(5, np.int32), items)
    request = EngineRequest(rendered, (ChoiceRequest(1, {}),), adapter=named)
    bindings = replace(ANY, adapters=Listening())
    ((_, native_request),) = native_requests(bindings, request)
    assert native_request.adapter == adapter  # type: ignore[attr-defined]
    suffix = "/8" if adapter == 8 else ""
    ids = [item.content_id for item in native_request.media]  # type: ignore[attr-defined]
    assert ids == [f"{at}{suffix}" for at in range(len(kinds))]


def test_appended_media_would_have_no_adapter() -> None:
    features = MediaFeatures(np.zeros((1, 1), np.float32), 1)
    media = RenderedPrompt(np.zeros(5, np.int32), (MediaItem("0", 0, features),))
    bindings = replace(ANY, adapters=Listening())
    native_chunk(bindings, InputChunk(RenderedPrompt.of([1])))
    with pytest.raises(EngineError, match="Media cannot be appended"):
        native_chunk(bindings, InputChunk(media))


def text_request(
    sampling: dict[str, int], rendered: RenderedPrompt | None = None, **fields: bool
) -> EngineRequest:
    if rendered is None:
        rendered = TEXT.prompt(np.array([5, 6, 7], np.int32))
    return EngineRequest(rendered, (ChoiceRequest(1, sampling),), **fields)  # type: ignore[arg-type]


def test_a_text_in_front() -> None:
    assert len(list(native_requests(TEXTS, text_request({"max_tokens": 6})))) == 1


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (text_request({}, RenderedPrompt.of([5, 6])), "is the text of its encoder"),
        (text_request({"max_tokens": 7}), "has 1 to 8 tokens, but 2 of the prompt and 7"),
        (text_request({"max_tokens": 1, "prompt_logprobs": 0}), "no log probabilities of prompts"),
        (text_request({"max_tokens": 1}, streaming_input=True), "as a whole, not in parts"),
    ],
)
def test_other_requests_of_texts(request_: EngineRequest, sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence) as error:
        list(native_requests(TEXTS, request_))
    assert error.value.code == "INVALID_ARGUMENT"


def test_nothing_is_appended_to_a_text() -> None:
    with pytest.raises(EngineError, match="not in parts"):
        native_chunk(TEXTS, InputChunk(RenderedPrompt.of([1])))
