"""Requests, outputs and statistics as plain data, for messages between processes."""

from __future__ import annotations

import random
import select
from typing import Any

import msgspec
import numpy as np
import pytest

from pagemill import _native

VOCAB = 5


def across(value: Any) -> Any:
    """`value` as another process would have it."""
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(value.to_wire()))
    return type(value).from_wire(wire)


def sampling(seed: int) -> _native.SamplingParams:
    draw = random.Random(seed)
    return _native.SamplingParams(
        temperature=draw.random(),
        top_k=draw.randrange(99),
        logit_bias=[(draw.randrange(9), -0.5), (3, 2.25)],
        seed=draw.getrandbits(64),
        ignore_eos=draw.random() < 0.5,
        eos_token_ids=[draw.randrange(VOCAB)],
        logprobs=2,
        prompt_logprobs=-2,
    )


def test_sampling_parameters_and_requests_survive() -> None:
    for seed in range(50):
        params = sampling(seed)
        assert across(params).to_wire() == params.to_wire()
        assert across(params).seed == params.seed
        request = _native.Request(
            id=seed,
            prompt_token_ids=list(range(seed)),
            tenant="caf\u00e9",
            adapter=2**63 + seed,
            media=[_native.MediaItem("cat", 1, 2)],
            deadline_us=-5 if seed % 2 else None,
            pooling=seed % 3 == 0,
            kv_transfer_params={"engine": "x", "number": str(seed)},
            sampling=params,
        )
        assert across(request).to_wire() == request.to_wire()


def constant_model(batch: dict[str, Any]) -> dict[str, np.ndarray]:
    logits = np.zeros((len(batch["logits_rows"]), VOCAB), dtype=np.float32)
    logits[:, 3] = 2
    return {"logits": logits}


def pooling_model(batch: dict[str, Any]) -> dict[str, np.ndarray]:
    return {"pooled": np.full((len(batch["seq_lens"]), 2), -0.5, dtype=np.float32)}


def outputs(model: Any, request: _native.Request, **limits: Any) -> list[_native.RequestOutput]:
    runner = _native.ModelRunner(
        _native.PythonExecutor(model),
        _native.RunnerLimits(vocab_size=VOCAB, num_blocks=9, **limits),
    )
    engine = _native.Engine(runner, _native.EngineOptions())
    client = engine.new_client()
    try:
        client.submit(across(request))
        found: list[_native.RequestOutput] = []
        while not found or found[-1].finish_reason is None:
            select.select([client.output_fd()], [], [], 5)
            found += _native.outputs_from_wire(client.poll_wire())
        stats = engine.stats()
        assert across(stats).to_wire() == stats.to_wire()
        assert across(stats).num_submitted == 1
        return found
    finally:
        engine.shutdown()


def test_what_a_request_brings_survives() -> None:
    params = _native.SamplingParams(temperature=0, max_tokens=4, logprobs=1, prompt_logprobs=0)
    request = _native.Request(id=2**48 - 1, prompt_token_ids=[1, 2], sampling=params)
    found = outputs(constant_model, request)
    assert [token for output in found for token in output.new_token_ids] == [3, 3, 3, 3]
    last = found[-1]
    assert (last.request_id, last.finish_reason, last.error_code) == (2**48 - 1, "length", None)
    entries = [entry for output in found for entry in output.logprobs or []]
    assert [(entry.token_id, entry.rank, entry.top[0][0]) for entry in entries] == [(3, 1, 3)] * 4
    (prompt,) = [output.prompt_logprobs for output in found if output.prompt_logprobs]
    assert [entry.token_id for entry in prompt] == [2]


def test_pooled_outputs_and_failures_survive() -> None:
    request = _native.Request(id=1, prompt_token_ids=[1], pooling=True)
    pooling = {"pooling": True, "chunked_prefill": False, "prefix_caching": False}
    (output,) = outputs(pooling_model, request, **pooling)
    assert output.pooled is not None
    np.testing.assert_array_equal(output.pooled, np.array([-0.5, -0.5], dtype=np.float32))
    (failed,) = outputs(lambda batch: 1 / 0, request, **pooling)
    assert (failed.finish_reason, failed.error_code) == ("error", "INTERNAL")
    assert failed.error_message is not None
    assert "division by zero" in failed.error_message


@pytest.mark.parametrize("kind", [_native.SamplingParams, _native.Request])
def test_what_to_wire_cannot_have_made_is_a_type_error(kind: Any) -> None:
    made = {
        _native.SamplingParams: sampling(0),
        _native.Request: _native.Request(id=1, sampling=sampling(1)),
    }
    good = list(made[kind].to_wire())
    kind.from_wire(good)
    garbage = [None, 5, "x", {}, [], good[:-1], [*good, 0]]
    for at in range(len(good)):
        garbage.append([*good[:at], {"no": 5}, *good[at + 1 :]])
    for wire in garbage:
        with pytest.raises(TypeError):
            kind.from_wire(wire)
    with pytest.raises(TypeError, match="another version of Pagemill; run the same version"):
        kind.from_wire([good[0] ^ 1, *good[1:]])


def test_outputs_of_another_making_are_refused() -> None:
    for wire in (b"", b"\x01", b"\xff" * 20, b"\x00\x00"):
        with pytest.raises(_native.StatusError, match="not outputs of this version"):
            _native.outputs_from_wire(wire)
    assert _native.outputs_from_wire(b"\x00") == []
    assert " finish_reason " in _native.output_schema()


def test_each_struct_has_a_schema_of_its_own() -> None:
    request = _native.Request(id=1, sampling=sampling(1))
    schemas = {wire[0] for wire in (sampling(0).to_wire(), request.to_wire())}
    assert len(schemas) == 2
    with pytest.raises(TypeError, match="another version"):
        _native.SamplingParams.from_wire(request.to_wire())


def test_a_prompt_may_be_an_array() -> None:
    made = _native.Request(id=1, prompt_token_ids=np.array([4, 5], dtype=np.int32))
    assert made.to_wire() == _native.Request(id=1, prompt_token_ids=[4, 5]).to_wire()


def test_clients_of_one_engine_have_ids_of_their_own() -> None:
    runner = _native.ModelRunner(
        _native.PythonExecutor(constant_model),
        _native.RunnerLimits(vocab_size=VOCAB, num_blocks=9),
    )
    engine = _native.Engine(runner, _native.EngineOptions())
    clients = [engine.new_client() for _ in range(2)]
    for max_tokens, client in enumerate(clients, 1):
        params = _native.SamplingParams(temperature=0, max_tokens=max_tokens)
        client.submit(_native.Request(id=1, prompt_token_ids=[1], sampling=params))
    for max_tokens, client in enumerate(clients, 1):
        tokens = 0
        while tokens < max_tokens:
            tokens += sum(len(output.new_token_ids) for output in client.wait(5))
        assert tokens == max_tokens
    clients[0].close()
    clients[0].close()
    with pytest.raises(_native.StatusError, match="closed"):
        clients[0].poll()
    engine.shutdown()
