"""Messages with arrays: what another process may send is bounded before anything is built of it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from pagemill.engine.messages import (
    ChoiceRequest,
    EngineRequest,
    Extend,
    Submit,
    client_messages,
    message_encoder,
)
from pagemill.inputs.rendered_prompt import (
    MAX_MEDIA_ITEMS,
    GridPositions,
    InputChunk,
    MediaFeatures,
    MediaItem,
    RenderedPrompt,
)

DECODER = client_messages()


def prompt() -> RenderedPrompt:
    grid = np.arange(6, dtype=np.int32).reshape(2, 3)
    features = MediaFeatures(
        np.arange(8, dtype=np.float32).reshape(2, 4),
        2,
        GridPositions(grid, grid, 3),
        1,
        np.array([[1, 0], [-1, 0]], np.int32),
        np.array([[0.25, 0.75], [1, 0]], np.float32),
        encoder=2,
    )
    return RenderedPrompt(np.arange(5, dtype=np.int32), (MediaItem("sha", 1, features),))


def submit() -> Submit:
    request = EngineRequest(prompt(), (ChoiceRequest(1, {"seed": 3}),), tenant="red")
    return Submit(7, [request], sent_us=5)


def test_a_request_arrives_as_it_was() -> None:
    got = DECODER.decode(message_encoder().encode(submit()))
    assert isinstance(got, Submit) and (got.sequence, got.sent_us) == (7, 5)
    (request,) = got.requests
    assert (request.choices, request.tenant) == ((ChoiceRequest(1, {"seed": 3}),), "red")
    assert request.prompt.token_ids.tolist() == [0, 1, 2, 3, 4]
    (item,), (sent,) = request.prompt.media, prompt().media
    assert (item.content_id, item.first_token, item.features.tokens) == ("sha", 1, 2)
    assert (item.features.row_tokens, item.features.encoder) == (1, 2)
    assert item.features.placement is not None and item.features.shares is not None
    assert item.features.placement.tolist() == [[1, 0], [-1, 0]]
    assert item.features.shares.tolist() == [[0.25, 0.75], [1, 0]]
    assert np.array_equal(item.features.rows, sent.features.rows)
    assert item.features.positions is not None and item.features.positions.next == 3
    assert item.features.positions.tokens.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_choices_share_their_prompt() -> None:
    choices = tuple(ChoiceRequest(i, {"seed": i}) for i in range(100))
    long = RenderedPrompt(np.arange(10_000, dtype=np.int32), prompt().media)
    size = len(message_encoder().encode(Submit(1, [EngineRequest(long, choices)], sent_us=0)))
    assert size < 40_000 + 100 * 20


def test_every_other_array_layout_arrives_contiguous() -> None:
    turned = np.arange(6, dtype=np.float32).reshape(3, 2).T
    sent = RenderedPrompt(np.arange(9, dtype=np.int32)[::3], (MediaItem("a", 0, _only(turned)),))
    got = DECODER.decode(message_encoder().encode(Extend(1, 2, InputChunk(sent, "turn"))))
    assert isinstance(got, Extend) and got.chunk.part == "turn"
    assert got.chunk.prompt.token_ids.tolist() == [0, 3, 6]
    rows = got.chunk.prompt.media[0].features.rows
    assert rows.tolist() == turned.tolist() and rows.flags.c_contiguous


def _only(rows: np.ndarray) -> MediaFeatures:
    return MediaFeatures(rows, 1)


WORD = b"\0\0\0\0"


@pytest.mark.parametrize(
    "token_ids",
    [
        ("<i4", [2], WORD),  # fewer bytes than the shape says
        ("<i4", [-1], WORD),
        ("<i4", [2**62, 4], b""),
        ("<i4", [0] * 3, b""),
        ("<i4", [1, 1], WORD),
        ("<f4", [1], WORD),
        ("|O", [1], WORD * 2),
        ("<i8", [1], WORD * 2),
        ("", [1], WORD),
        WORD,
        None,
        [1, 2],
    ],
)
def test_what_is_no_array_of_token_ids_is_no_message(token_ids: Any) -> None:
    message = ["Extend", 1, 2, [[token_ids, []], "last"]]
    with pytest.raises(msgspec.DecodeError):
        DECODER.decode(msgspec.msgpack.encode(message))


def test_parts_and_the_number_of_items_are_bounded() -> None:
    ids = ("<i4", [1], WORD)
    item = ["a", 0, [("<f4", [1, 1], WORD), 1, None]]
    for media, part in (([item], "last"), ([item] * MAX_MEDIA_ITEMS, "more")):
        DECODER.decode(msgspec.msgpack.encode(["Extend", 1, 2, [[ids, media], part]]))
    for media, part in (([item], "end"), ([item] * (MAX_MEDIA_ITEMS + 1), "more")):
        with pytest.raises(msgspec.DecodeError):
            DECODER.decode(msgspec.msgpack.encode(["Extend", 1, 2, [[ids, media], part]]))


def test_damaged_messages_are_no_messages_or_whole_ones() -> None:
    draw = random.Random(1)
    whole = message_encoder().encode(submit())
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            message = DECODER.decode(bytes(damaged[: draw.randrange(1, len(damaged) + 1)]))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        for request in getattr(message, "requests", []):
            RenderedPrompt(request.prompt.token_ids, request.prompt.media)
