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
from pagemill.engine.client_conformance import Listener, run_loop
from pagemill.engine.engine_server import EngineServer
from pagemill.engine.local_client import LocalClient
from pagemill.engine.messages import EngineRequest, ModelFacts, prompt_bytes
from pagemill.engine.native import NativeSeam, OutputCodec
from pagemill.engine.outputs import EngineError
from pagemill.engine.socket_client import SocketClient

VOCAB = 5
MODEL = ModelFacts(names=("constant",), path="", max_model_len=64, vocab_size=VOCAB)
CODEC = OutputCodec(_native.outputs_from_wire, _native.StatusError, _native.output_schema())


def constant_model(batch: dict[str, Any]) -> dict[str, np.ndarray]:
    logits = np.zeros((len(batch["logits_rows"]), VOCAB), dtype=np.float32)
    logits[:, 3] = 2
    return {"logits": logits}


def make_seam() -> NativeSeam:
    limits = _native.RunnerLimits(vocab_size=VOCAB, num_blocks=64)
    runner = _native.ModelRunner(_native.PythonExecutor(constant_model), limits)
    engine = _native.Engine(runner, _native.EngineOptions())
    return NativeSeam(engine, _native.SamplingParams, _native.Request, _native.StatusError)


@contextlib.asynccontextmanager
async def local(seam: NativeSeam) -> AsyncGenerator[EngineClient, None]:
    yield LocalClient(seam, MODEL)


@contextlib.asynccontextmanager
async def across(seam: NativeSeam) -> AsyncGenerator[EngineClient, None]:
    with tempfile.TemporaryDirectory() as folder:
        server = EngineServer(seam, MODEL, CODEC.schema)
        await server.listen(f"{folder}/engine")
        yield SocketClient(f"{folder}/engine", CODEC)
        await server.close()


Connect = Callable[[NativeSeam], contextlib.AbstractAsyncContextManager[EngineClient]]


@pytest.mark.parametrize("connect", [local, across])
def test_requests_outputs_and_refusals_are_those_of_the_engine(connect: Connect) -> None:
    async def main() -> None:
        seam = make_seam()
        async with connect(seam) as client:
            heard = Listener()
            await client.start(heard.on_outputs, heard.on_lost)
            sampling = {"temperature": 0.0, "max_tokens": 4, "logprobs": 1, "prompt_logprobs": 0}
            await client.submit([EngineRequest(i, prompt_bytes([1, 2]), sampling) for i in (1, 2)])
            await heard.until(lambda: len(heard.ends) == 2)
            assert heard.tokens == {1: [3] * 4, 2: [3] * 4}
            for end in heard.ends.values():
                assert (end.finish_reason, end.error_code) == ("length", None)
                assert end.queued_s >= 0 and end.decode_s >= 0
            outside = EngineRequest(3, prompt_bytes([1]), {"temperature": -1.0})
            with pytest.raises(EngineError) as refused:
                await client.submit([outside])
            assert (refused.value.code, refused.value.param) == ("INVALID_ARGUMENT", "temperature")
            with pytest.raises(EngineError) as refused:
                await client.submit([EngineRequest(4, prompt_bytes([1]), {"no_such_field": 1})])
            assert refused.value.code == "INVALID_ARGUMENT"
            assert await client.call("reset_prefix_cache") is True
            async with asyncio.timeout(20):
                while client.stats().generation_tokens != 8:
                    await asyncio.sleep(0.02)
            await client.close()
        seam.engine.shutdown()

    run_loop(main())
