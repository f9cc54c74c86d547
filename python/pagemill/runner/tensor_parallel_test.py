"""Programs divided among ranks compute the same as the whole one; torch references on threads."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pagemill.layers.attention import AttentionShape, divide
from pagemill.ops.program_text import from_text
from pagemill.ops.shard import Part, Shard
from pagemill.ops.table import reference
from pagemill.ops.trace import Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.runner import torch_executor
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights import ModelSource, WeightsError
from pagemill.weights.location import TensorLocation

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 83,
    "hidden_size": 32,
    "intermediate_size": 50,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "attention_bias": True,
    "mlp_bias": True,
    "tie_word_embeddings": True,
    "eos_token_id": [2],
}


def _model(directory: Path, **changes: Any) -> ModelSource:
    config = CONFIG | changes
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    rows = {"self_attn.q": hidden, "self_attn.k": keys, "self_attn.v": keys, "self_attn.o": hidden}
    rows |= {"mlp.gate": inner, "mlp.up": inner, "mlp.down": hidden}
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (config["vocab_size"], hidden)}
    shapes["norm"] = (hidden,)
    for layer in range(config["num_hidden_layers"]):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"layers.{layer}.{norm}"] = (hidden,)
        for name, out in rows.items():
            shapes[f"layers.{layer}.{name}_proj"] = (out, inner if name == "mlp.down" else hidden)
    generator = torch.Generator().manual_seed(3)
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in shapes.items():
        scale = shape[-1] ** -0.5 if len(shape) > 1 else 1.0
        tensors[f"model.{name}.weight"] = scale * torch.randn(shape, generator=generator)
        if name.endswith("_proj"):
            tensors[f"model.{name}.bias"] = torch.randn(shape[0], generator=generator)
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(config))
    return ModelSource.open(directory)


class _Group:
    """Collectives of threads that call in step; each thread sets its rank once."""

    def __init__(self, ranks: int) -> None:
        self._parts: list[torch.Tensor | None] = [None] * ranks
        self._barrier = threading.Barrier(ranks)
        self._rank = threading.local()

    def join(self, rank: int) -> None:
        self._rank.value = rank

    def exchange(self, join: Callable[[list[Any]], torch.Tensor]) -> Any:
        def reference(inputs: Any, attributes: Any, step: Any) -> tuple[torch.Tensor, ...]:
            del attributes, step
            self._parts[self._rank.value] = inputs[0]
            self._barrier.wait(60)
            result = join(self._parts)
            self._barrier.wait(60)
            return (result,)

        return reference


def _logits(built: BuiltModel) -> np.ndarray:
    batch = SimpleBatch(num_blocks=8, block_size=16).step({0: [1, 5, 9], 1: [7]}, all_logits=True)
    return TorchExecutor(built.program_text, TorchOptions(num_blocks=8))(batch)["logits"]


def _build(source: ModelSource, rank: int = 0, ranks: int = 1) -> BuiltModel:
    return build(source, BuildOptions(rewrite=False, shard=Shard(rank, ranks)))


def _check_ranks(source: ModelSource, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _logits(_build(source))
    group = _Group(ranks)
    collectives = {
        "all_reduce": group.exchange(lambda parts: sum(parts[1:], parts[0])),
        "all_gather": group.exchange(lambda parts: torch.cat(parts, dim=1)),
    }
    monkeypatch.setattr(
        torch_executor, "reference", lambda op: collectives.get(op) or reference(op)
    )

    def run(rank: int) -> np.ndarray:
        group.join(rank)
        return _logits(_build(source, rank, ranks))

    with ThreadPoolExecutor(ranks) as pool:
        results = list(pool.map(run, range(ranks)))
    for result in results:
        np.testing.assert_array_equal(result, results[0])
        # Sums of up to 50 products of order 1, added in another order: 50 x 2^-24 of some 10 each
        # time, and few times one after the other.
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1), (8, 2)])
def test_ranks_compute_the_logits_of_the_whole_program(
    heads: int, kv_heads: int, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = _model(tmp_path, num_attention_heads=heads, num_key_value_heads=kv_heads)
    _check_ranks(source, ranks, monkeypatch)


def test_a_rank_has_its_part_of_each_matrix(tmp_path: Path):
    program = from_text(_build(_model(tmp_path), 1, 2).program_text)
    shapes = {weight.name: weight.shape for weight in program.weights}
    prefix = "model.layers.1"
    assert shapes[f"{prefix}.self_attn.q_proj.weight.rows16-32"] == (16, 32)
    assert shapes[f"{prefix}.self_attn.k_proj.weight.rows8-16"] == (8, 32)
    assert shapes[f"{prefix}.self_attn.k_proj.bias.part8-16"] == (8,)
    assert shapes[f"{prefix}.self_attn.o_proj.weight.columns16-32"] == (32, 16)
    assert shapes[f"{prefix}.mlp.down_proj.weight.columns25-50"] == (32, 25)
    assert shapes["model.embed_tokens.weight"] == (83, 32)
    assert shapes["model.embed_tokens.weight.rows41-83"] == (42, 32)
    assert {cache.dims[0] for cache in program.caches} == {1}
    # A bias after a sum is added once.
    assert not any(name.startswith(f"{prefix}.mlp.down_proj.bias") for name in shapes)


@pytest.mark.parametrize("rank", range(4))
def test_a_kv_head_is_on_several_ranks_if_there_are_fewer_than_ranks(rank: int, tmp_path: Path):
    built = _build(_model(tmp_path, hidden_size=64, num_attention_heads=16), rank, 4)
    assert built.notes == ()
    program = from_text(built.program_text)
    shapes = {weight.name: weight.shape for weight in program.weights}
    prefix, kv_head = "model.layers.1.self_attn", rank // 2
    assert shapes[f"{prefix}.q_proj.weight.rows{16 * rank}-{16 * rank + 16}"] == (16, 64)
    for name in ("k_proj", "v_proj"):
        assert shapes[f"{prefix}.{name}.weight.rows{4 * kv_head}-{4 * kv_head + 4}"] == (4, 64)
        assert shapes[f"{prefix}.{name}.bias.part{4 * kv_head}-{4 * kv_head + 4}"] == (4,)
    assert shapes[f"{prefix}.o_proj.weight.columns{16 * rank}-{16 * rank + 16}"] == (64, 16)
    assert {cache.dims[0] for cache in program.caches} == {1}


def test_attention_that_cannot_be_divided_is_computed_by_every_rank(tmp_path: Path):
    built = _build(
        _model(tmp_path, hidden_size=48, num_attention_heads=3, num_key_value_heads=3), 1, 2
    )
    assert built.notes == (
        "every rank computes the whole attention: 3 heads with 3 KV heads do not divide evenly"
        " among 2 ranks",
    )
    program = from_text(built.program_text)
    names = {weight.name for weight in program.weights}
    assert "model.layers.0.self_attn.o_proj.weight" in names
    assert "model.layers.0.mlp.up_proj.weight.rows25-50" in names
    assert sum(op.op == "all_reduce" for op in program.ops) == 2


def test_the_program_of_one_rank_has_no_collectives(tmp_path: Path):
    program = from_text(_build(_model(tmp_path)).program_text)
    assert not {"all_reduce", "all_gather"} & {op.op for op in program.ops}
    assert not any(weight.row_stride for weight in program.weights)


def test_a_dimension_smaller_than_the_group_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="a dimension of 50 in units of 1 cannot be divided among"):
        _build(_model(tmp_path), 0, 51)


def test_the_torch_executor_is_one_rank(tmp_path: Path):
    with pytest.raises(ValueError, match="the torch executor runs programs of one rank"):
        _logits(_build(_model(tmp_path), 0, 2))


class _BlockSource:
    """One matrix of 4 rows of two blocks of 32."""

    path = "model.gguf"
    config: ClassVar[dict[str, Any]] = {}

    def has(self, name: str) -> bool:
        return bool(name)

    def tensor(self, name: str) -> TensorLocation:
        return TensorLocation(name, "q8_0", (4, 64), "model.gguf", 1000)


def test_columns_are_whole_blocks():
    weights = WeightBinder(Trace(), cast(Any, _BlockSource()), Shard(1, 2))
    part = weights.shard.part(64, weights.block_elements("w.weight"))
    weights.matrix("w.weight", (4, 64), columns=part)
    (entry,) = weights.trace.program.weights
    assert (entry.shape, entry.offset, entry.row_stride) == ((4, 32), 1034, 68)
    with pytest.raises(
        WeightsError, match="columns 16 to 48 of w.weight would cut a block of 32 elem"
    ):
        weights.matrix("w.weight", (4, 64), columns=Part(16, 48, 64))


def test_heads_that_would_cut_a_block_are_not_divided():
    weights = WeightBinder(Trace(), cast(Any, _BlockSource()), Shard(0, 2))
    shape = AttentionShape(heads=2, kv_heads=2, head_dim=24, scale=1.0)
    assert divide(weights, shape, "o") == shape
    assert weights.notes == [
        "every rank computes the whole attention: 24 features, a rank's part of o, are not a whole"
        " number of blocks of 32"
    ]
    shape = AttentionShape(heads=2, kv_heads=2, head_dim=32, scale=1.0)
    assert divide(weights, shape, "o").shard == Shard(0, 2)
