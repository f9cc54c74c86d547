"""Both engine clients over the compiled engine with a model of five tokens: the same outputs."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
import pytest

from pagemill import _native
from pagemill.engine.client import EngineClient
from pagemill.engine.engine_server import EngineServer
from pagemill.engine.local_client import LocalClient
from pagemill.engine.messages import ChoiceRequest, EngineRequest, ModelFacts
from pagemill.engine.native import NativeBindings, OutputCodec
from pagemill.engine.outputs import EngineError
from pagemill.engine.remote.passed_connection import connect_passed
from pagemill.engine.socket_client import SocketClient
from pagemill.engine.testing.client_listener import Listener, run_loop
from pagemill.engine.testing.joined_engine import joined
from pagemill.inputs.rendered_prompt import (
    GridPositions,
    MediaFeatures,
    MediaItem,
    RenderedPrompt,
)

VOCAB = 5
MODEL = ModelFacts(names=("constant",), path="", max_model_len=64, vocab_size=VOCAB)
CODEC = OutputCodec(_native.outputs_from_wire, _native.StatusError, _native.output_schema())


def constant_model(batch: dict[str, Any]) -> dict[str, np.ndarray]:
    logits = np.zeros((len(batch["logits_rows"]), VOCAB), dtype=np.float32)
    logits[:, 3] = 2
    return {"logits": logits}


class ImageModel:
    """Answers with the first value of its image's features, and keeps the positions it got."""

    def __init__(self) -> None:
        self.grid_positions: list[list[int]] = []
        options = _native.MediaEncoderOptions(rows=2, channels=4, tokens=2, width=4, grid=True)
        limits = _native.RunnerLimits(vocab_size=VOCAB, num_blocks=64, max_encoder_tokens=8)
        encoder = _native.PythonExecutor(lambda batch: {"embeddings": batch["inputs"][0]})
        self.runner = _native.ModelRunner(
            _native.PythonExecutor(self.model),
            limits,
            encoders=[(encoder, options)],
        )

    def model(self, batch: dict[str, Any]) -> dict[str, np.ndarray]:
        self.grid_positions = batch["grid_positions"].tolist()
        logits = np.zeros((len(batch["logits_rows"]), VOCAB), dtype=np.float32)
        logits[:, int(batch["inputs"][0][0, 0])] = 2
        return {"logits": logits}


def make_bindings(**options: Any) -> NativeBindings:
    limits = _native.RunnerLimits(vocab_size=VOCAB, num_blocks=64)
    runner = _native.ModelRunner(_native.PythonExecutor(constant_model), limits)
    engine = _native.Engine(runner, _native.EngineOptions(**options))
    return NativeBindings(engine, _native)


@contextlib.asynccontextmanager
async def local(bindings: NativeBindings) -> AsyncGenerator[EngineClient, None]:
    yield LocalClient(bindings, MODEL)


@contextlib.asynccontextmanager
async def across(bindings: NativeBindings) -> AsyncGenerator[EngineClient, None]:
    with tempfile.TemporaryDirectory() as folder:
        server = EngineServer(bindings, MODEL, CODEC.schema)
        await server.listen(f"{folder}/engine")
        yield SocketClient(f"{folder}/engine", CODEC)
        await server.close()


@contextlib.asynccontextmanager
async def remote(bindings: NativeBindings) -> AsyncGenerator[EngineClient, None]:
    """As an engine on another machine."""
    server = EngineServer(bindings, MODEL, CODEC.schema)
    async with joined(server) as path:
        yield SocketClient(path, CODEC, connect_passed)
    await server.close()


def request(token_ids: list[int], *ids: int, **sampling: Any) -> EngineRequest:
    choices = tuple(ChoiceRequest(request_id, sampling) for request_id in ids)
    return EngineRequest(RenderedPrompt.of(token_ids), choices)


def image(value: float, *, rows: int = 2) -> MediaItem:
    grid = np.array([[0, 0, 0], [0, 0, 1]], np.int32)
    features = np.full((rows, 4), value, np.float32)
    return MediaItem(f"image {value}", 1, MediaFeatures(features, 2, GridPositions(grid, grid, 2)))


Connect = Callable[[NativeBindings], contextlib.AbstractAsyncContextManager[EngineClient]]


@pytest.mark.parametrize("connect", [local, across])
def test_histograms_and_lists_are_among_the_statistics(connect: Connect) -> None:
    async def main() -> None:
        bindings = make_bindings(kv_block_age_sample=1.0)
        sampling = _native.SamplingParams(temperature=0.0, max_tokens=1)
        for number in range(2):
            bindings.engine.submit(number, [1] * 33, sampling)  # pyright: ignore
            bindings.engine.wait_idle(5)  # pyright: ignore
        async with connect(bindings) as client:
            received = Listener()
            await client.start(received.on_outputs, received.on_lost)
            (stats,) = client.engines()
            gaps: Any = getattr(stats, "kv_block_reuse_gap")  # noqa: B009 -- not in the protocol
            assert sum(gaps.counts) == 2
            assert len(gaps.bounds_s) + 1 == len(gaps.counts)
            assert gaps.sum_s > 0
            assert list(stats.accepted_drafts_by_position) == []
            await client.close()
        bindings.engine.shutdown()

    run_loop(main())


@pytest.mark.parametrize("connect", [local, across, remote])
def test_requests_outputs_and_refusals_are_those_of_the_engine(connect: Connect) -> None:
    async def main() -> None:
        bindings = make_bindings()
        async with connect(bindings) as client:
            received = Listener()
            await client.start(received.on_outputs, received.on_lost)
            sampling = {"temperature": 0.0, "max_tokens": 4, "logprobs": 1, "prompt_logprobs": 0}
            await client.submit([request([1, 2], 1, 2, **sampling)])
            await received.until(lambda: len(received.ends) == 2)
            assert received.tokens == {1: [3] * 4, 2: [3] * 4}
            for end in received.ends.values():
                assert (end.finish_reason, end.error_code) == ("length", None)
                assert end.queued_s >= 0 and end.decode_s >= 0
            with pytest.raises(EngineError) as refused:
                await client.submit([request([1], 3, temperature=-1.0)])
            assert (refused.value.code, refused.value.param) == ("INVALID_ARGUMENT", "temperature")
            with pytest.raises(EngineError) as refused:
                await client.submit([request([1], 4, no_such_field=1)])
            assert refused.value.code == "INVALID_ARGUMENT"
            assert await client.call("reset_prefix_cache") is True
            async with asyncio.timeout(60):
                while client.stats().generation_tokens != 8:
                    await asyncio.sleep(0.02)
            await client.close()
        bindings.engine.shutdown()

    run_loop(main())


@pytest.mark.parametrize("connect", [local, across, remote])
def test_images_and_their_positions_reach_the_model(connect: Connect) -> None:
    async def main() -> None:
        model = ImageModel()
        engine = _native.Engine(model.runner, _native.EngineOptions())
        async with connect(NativeBindings(engine, _native)) as client:
            received = Listener()
            await client.start(received.on_outputs, received.on_lost)
            token_ids = np.array([1, 2, 2, 1], np.int32)
            for request_id, value in ((1, 4.0), (3, 2.0)):
                prompt = RenderedPrompt(token_ids, (image(value),))
                choice = ChoiceRequest(request_id, {"temperature": 0.0, "max_tokens": 1})
                await client.submit([EngineRequest(prompt, (choice,))])
                await received.until(lambda: request_id in received.ends)  # noqa: B023
                assert received.tokens[request_id] == [int(value)]
                assert model.grid_positions == [[0, 0, 0], [1, 1, 1], [1, 1, 2], [3, 3, 3]]
            broken = RenderedPrompt(token_ids, (image(1.0, rows=1),))
            with pytest.raises(EngineError, match="features of 1 rows of 4 channels") as refused:
                await client.submit([EngineRequest(broken, (ChoiceRequest(5, {}),))])
            assert refused.value.code == "INVALID_ARGUMENT"
            await client.close()
        engine.shutdown()

    run_loop(main())
