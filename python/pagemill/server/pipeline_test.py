"""Prompts with media on their way to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from pagemill.engine.sampling import SamplingParams
from pagemill.engine.testing.fake_engine import FakeEngine
from pagemill.inputs.rendered_prompt import MediaFeatures, MediaItem, RenderedPrompt
from pagemill.server.errors import ApiError
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.pipeline import Pipeline
from pagemill.server.testing.fake_server import make_pipeline

IMAGE = MediaItem("sha", 1, MediaFeatures(np.ones((2, 4), np.float32), 2))
PROMPT = RenderedPrompt(np.array([97, 98, 98, 99], np.int32), (IMAGE,))


def _run(body: Callable[[Pipeline, FakeEngine], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = FakeEngine()
        pipeline = await make_pipeline(engine)
        try:
            await body(pipeline, engine)
        finally:
            await pipeline.engine.shutdown()
            engine.shutdown()

    asyncio.run(main())


def _options(truncate_prompt_tokens: int) -> GenerationOptions:
    return GenerationOptions(
        max_tokens=2, default_max_tokens=2, truncate_prompt_tokens=truncate_prompt_tokens
    )


def test_media_of_a_prompt_reach_the_engine() -> None:
    async def body(pipeline: Pipeline, engine: FakeEngine) -> None:
        for limit in (4, -1):  # nothing has to be cut
            (await pipeline.generate([PROMPT], SamplingParams(), _options(limit))).close()
        for state in engine.submitted:
            (item,) = state.media
            assert (item.content_id, item.first_token, item.num_tokens) == ("sha", 1, 2)
            assert item.features is IMAGE.features.rows

    _run(body)


def test_a_prompt_with_media_is_not_truncated() -> None:
    async def body(pipeline: Pipeline, engine: FakeEngine) -> None:
        with pytest.raises(ApiError, match="or embeddings is not truncated to 3") as error:
            await pipeline.generate([PROMPT], SamplingParams(), _options(3))
        assert (error.value.status, error.value.param) == (400, "truncate_prompt_tokens")
        assert engine.submitted == []

    _run(body)
