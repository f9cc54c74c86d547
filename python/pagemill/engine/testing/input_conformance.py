"""How inputs reach the engine by every `EngineClient`: see `client_conformance`."""

from __future__ import annotations

import numpy as np
import pytest

from pagemill.engine.client import EngineClient
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.outputs import EngineError
from pagemill.engine.testing.client_listener import Connect, Listener, expected, request, run
from pagemill.engine.testing.fake_engine import FakeEngine
from pagemill.engine.testing.fake_types import FakeMediaItem
from pagemill.inputs.rendered_prompt import (
    GridPositions,
    InputChunk,
    MediaFeatures,
    MediaItem,
    RenderedPrompt,
)

__all__ = [
    "test_a_prompt_may_come_in_parts",
    "test_a_refused_extension_says_why",
    "test_media_and_their_positions_arrive",
]


def test_a_prompt_may_come_in_parts(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        await client.submit([request(1, 1, streaming_input=True)])
        await client.extend(1, InputChunk(RenderedPrompt.of([2, 3]), "more"))
        await client.extend(1, InputChunk(RenderedPrompt.of([4])))
        await received.until(lambda: 1 in received.ends)
        assert received.tokens[1] == expected(4, 8)

    run(connect, FakeEngine(), body)


def test_a_refused_extension_says_why(connect: Connect) -> None:
    async def body(client: EngineClient, received: Listener) -> None:
        with pytest.raises(EngineError, match="does not exist"):
            await client.extend(1, InputChunk(RenderedPrompt.of([2])))

    run(connect, FakeEngine(), body)


def image(seed: int, first_token: int, *, grid: bool) -> MediaItem:
    rows = np.random.default_rng(seed).random((4, 3), np.float32)
    positions = GridPositions(
        np.arange(12, dtype=np.int32).reshape(4, 3), np.full((2, 3), seed, np.int32), seed + 1
    )
    features = MediaFeatures(rows, 2, positions if grid else None, encoder=int(grid))
    return MediaItem(f"sha-{seed}", first_token, features)


def check_media(got: FakeMediaItem, sent: MediaItem, first_token: int) -> None:
    features = sent.features
    assert (got.content_id, got.first_token) == (sent.content_id, first_token)
    assert (got.num_tokens, got.encoder) == (features.tokens, features.encoder)
    assert got.features is not None and got.features.dtype == np.float32
    assert np.array_equal(got.features, features.rows)
    assert (got.positions is None) == (features.positions is None)
    if got.positions is not None and features.positions is not None:
        assert np.array_equal(got.positions[0], features.positions.rows)
        assert np.array_equal(got.positions[1], features.positions.tokens)
        assert got.positions[2] == features.positions.next


def test_media_and_their_positions_arrive(connect: Connect) -> None:
    items = image(1, 0, grid=False), image(2, 3, grid=False), image(3, 1, grid=True)

    async def body(client: EngineClient, received: Listener) -> None:
        prompt = RenderedPrompt(np.arange(5, dtype=np.int32), items[:2])
        choices = tuple(ChoiceRequest(i, {"max_tokens": 2}) for i in (1, 2))
        await client.submit([EngineRequest(prompt, choices, streaming_input=True)])
        more = RenderedPrompt(np.array([7, 8, 9], np.int32), items[2:])
        for request_id in (1, 2):
            await client.extend(request_id, InputChunk(more))
        await received.until(lambda: len(received.ends) == 2)
        assert received.tokens == {i: expected(9, 2) for i in (1, 2)}
        for state in engine.submitted:
            assert state.prompt == [0, 1, 2, 3, 4, 7, 8, 9]
            for got, sent, first in zip(state.media, items, (0, 3, 6), strict=True):
                check_media(got, sent, first)
        first, second = (state.request.media for state in engine.submitted)
        assert first[0].features is second[0].features  # choices share them

    engine = FakeEngine()
    run(connect, engine, body)
