"""Tiny models of each family, divided between processes: the same tokens as with one process, and
log probabilities that differ only by the rounding of another summation order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.config import EngineConfig, build
from pagemill.engine.loading import LoadedModel, load
from pagemill.engine.model_plan import plan_model

from tests.families import families
from tests.parity.executors import require_native
from tests.parity.fp4_checkpoints import tiny_gpt_oss, write_mxfp4, write_nvfp4
from tests.parity.packed_checkpoints import Scheme, write_packed
from tests.parity.scaled_checkpoints import SCHEMES, write_scaled, write_scaled_experts
from tests.parity.tiny_models import make, tiny_llama

PROMPTS = [[5, 9, 100, 7, 3, 120, 64, 31, 8], [77], list(range(2, 60))]
# Attention over shared prefixes is computed once, 256 tokens at a time.
SHARED = [7 * i % 250 + 2 for i in range(300)]
PROMPTS_THAT_SHARE = [[*SHARED, *end] for end in ([3], [11, 12], [40, 41, 42])]
TOKENS = 12
WHOLE_EXPERTS = {"enable_expert_parallel": True}


@contextlib.contextmanager
def engine(directory: Path, ranks: int, **changes: Any) -> Iterator[LoadedModel]:
    options: dict[str, Any] = {
        "model": str(directory),
        "max_model_len": 512,
        "kv_cache_memory_bytes": "16MiB",
        "kv_cache_dtype": "f32",
        "activation_dtype": "f32",
        "tensor_parallel_size": ranks,
        **changes,
    }
    loaded = load(build(EngineConfig, options))
    try:
        yield loaded
    finally:
        loaded.core.bindings.engine.shutdown()
        loaded.core.close_ranks()


def greedy(
    loaded: LoadedModel, prompts: list[list[int]], *, logprobs: bool = True
) -> list[list[tuple[int, float]]]:
    """For each prompt, the tokens, each with its log probability, or with 0 to save work."""
    bindings = loaded.core.bindings
    from pagemill import _native

    wanted = {"logprobs": 1} if logprobs else {}
    sampling = _native.SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, **wanted)
    for request, prompt in enumerate(prompts):
        bindings.engine.submit(request, np.array(prompt, np.int32), sampling)
    results: list[list[tuple[int, float]]] = [[] for _ in prompts]
    finished: set[int] = set()
    deadline = time.monotonic() + 60
    while len(finished) < len(prompts):
        assert time.monotonic() < deadline
        for output in bindings.engine.wait(1.0):
            assert output.error_message is None, output.error_message
            values: list[Any] = list(output.logprobs or ())
            scores = [v.logprob for v in values] if logprobs else [0.0] * len(output.new_token_ids)
            results[output.request_id] += zip(output.new_token_ids, scores, strict=True)
            if output.finish_reason is not None:
                finished.add(output.request_id)
    return results


# tests/families runs ranks of every family as threads of one process.
@pytest.mark.parametrize(
    ("family", "divided"),
    [
        ("deepseek_v2", True),  # each rank has all latents
        ("gemma3", True),
        ("granite_hybrid_experts", True),  # heads of state-space layers, with their states
        ("llama", True),
        ("qwen3_moe", True),  # ranks divide the features of each expert
        ("qwen3_next", True),  # groups of heads of the gated delta rule
        ("olmo2", False),  # every rank computes all queries and keys
    ],
)
def test_two_processes_say_what_one_says(family: str, divided: bool, tmp_path: Path) -> None:
    require_native()
    families.make(family, tmp_path)
    _check(tmp_path, divided)


def test_two_processes_divide_bf16(tmp_path: Path) -> None:
    require_native()
    make("llama", tmp_path, "bf16")
    _check(tmp_path, True)


@pytest.mark.parametrize("name", ["w8a8", "fp8-tensor", "fp8-block"])
def test_scaled_weights_are_divided(name: str, tmp_path: Path) -> None:
    """Rows of blocks that begin inside a block; columns at whole blocks."""
    require_native()
    write_scaled(tiny_llama(attention_bias=True), tmp_path, SCHEMES[name])
    _check(tmp_path, True)


@pytest.mark.parametrize("name", ["w8a8", "fp8-channel"])
def test_stacks_of_scaled_experts_are_divided(name: str, tmp_path: Path) -> None:
    require_native()
    make("qwen3_moe", tmp_path)
    write_scaled_experts(tmp_path, SCHEMES[name])
    _check(tmp_path / "scaled", True)


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v2", "mixtral"])
def test_two_processes_have_whole_experts(family: str, tmp_path: Path) -> None:
    """Of 13 or 5 experts, one rank has one more. Ranks divide the width of shared experts."""
    require_native()
    families.make(family, tmp_path)
    _check(tmp_path, True, **WHOLE_EXPERTS)


def test_the_plan_counts_whole_experts(tmp_path: Path) -> None:
    """The ranks have all experts between them, as they have all of their features."""
    require_native()
    families.make("qwen3_moe", tmp_path)
    options = {"model": str(tmp_path), "max_model_len": 512}
    one, features, experts = (
        plan_model(build(EngineConfig, options | ranks)).weights
        for ranks in ({}, {"tensor_parallel_size": 2}, {"tensor_parallel_size": 2} | WHOLE_EXPERTS)
    )
    assert one < features == experts < 1.5 * one


def test_experts_in_one_block_are_whole(tmp_path: Path) -> None:
    """The 40 features of an expert are in one block of 48: ranks cannot divide them."""
    require_native()
    families.make("qwen3_moe", tmp_path, changes={"moe_intermediate_size": 40})
    write_scaled_experts(tmp_path, SCHEMES["fp8-block"])
    message = "a dimension of 40 in units of 48 cannot be divided among 2 ranks"
    with pytest.raises(ValueError, match=message), engine(tmp_path / "scaled", 2):
        pass
    _check(tmp_path / "scaled", True, **WHOLE_EXPERTS)


def test_mxfp4_experts_are_whole(tmp_path: Path) -> None:
    """With their biases."""
    require_native()
    write_mxfp4(tmp_path)
    _check(tmp_path, True, **WHOLE_EXPERTS)


# Ranks take rows and columns of packed integers; act-order columns have groups everywhere, so they
# are expanded, with a note.
@pytest.mark.parametrize(
    "scheme",
    [
        Scheme("awq"),
        Scheme("gptq", zeros=False),
        Scheme("gptq_v2", act_order=True),
        Scheme("pack_quantized", 8, -1, zeros=False),
    ],
    ids=lambda scheme: scheme.layout,
)
def test_packed_integers_are_divided(scheme: Scheme, tmp_path: Path) -> None:
    require_native()
    write_packed(tmp_path, scheme)
    _check(tmp_path, not scheme.act_order)


def test_experts_that_are_stored_transposed_are_divided(tmp_path: Path) -> None:
    """And their biases, and sinks."""
    require_native()
    tiny_gpt_oss().save_pretrained(tmp_path)
    _check(tmp_path, True)


def test_mxfp4_is_divided(tmp_path: Path) -> None:
    """Of 5 groups of features, one rank has 2, the other 3."""
    require_native()
    write_mxfp4(tmp_path)
    _check(tmp_path, True)


def test_nvfp4_is_divided(tmp_path: Path) -> None:
    """Of 5 blocks of features, one rank has 2, the other 3."""
    require_native()
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 160}
    tiny_llama(**sizes).save_pretrained(tmp_path)
    _check(write_nvfp4(tmp_path, ("_proj.",), divides=True), True)


@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS_THAT_SHARE], ids=["apart", "sharing"])
def test_four_ranks_have_two_kv_heads(prompts: list[list[int]], tmp_path: Path) -> None:
    """Each KV head is on two ranks, with the keys and values of prompts that others share."""
    require_native()
    tiny_llama(num_attention_heads=8).save_pretrained(tmp_path)
    _check(tmp_path, True, ranks=4, prompts=prompts)


def _check(
    directory: Path,
    divided: bool,
    *,
    ranks: int = 2,
    prompts: list[list[int]] = PROMPTS,
    **options: Any,
) -> None:
    with engine(directory, 1) as whole:
        expected = greedy(whole, prompts)
    with engine(directory, ranks, **options) as loaded:
        assert (not loaded.core.built.notes) == divided
        got = greedy(loaded, prompts)
        # Ranks then exchange the largest logit of a row instead of all.
        by_maxima = greedy(loaded, prompts, logprobs=False)
    for mine, theirs in zip(by_maxima, got, strict=True):
        assert [token for token, _ in mine] == [token for token, _ in theirs]
    for mine, theirs in zip(got, expected, strict=True):
        assert [token for token, _ in mine] == [token for token, _ in theirs]
        # Each of the 6 or so divided sums has some 100 terms; rounding in another order changes the
        # result by at most 100 x 2^-24 of their size, and the rest of a layer can amplify that
        # tenfold.
        np.testing.assert_allclose(
            [logprob for _, logprob in mine], [logprob for _, logprob in theirs], atol=4e-4, rtol=0
        )
