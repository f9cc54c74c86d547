"""Weights within a prefix are those of the whole names, by every method of `Weights`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pagemill.layers.base import Weights
from pagemill.ops.expert_layer import ExpertLayer
from pagemill.ops.head_tables import HeadTables
from pagemill.ops.program import ACT
from pagemill.ops.shard import Part, Stripe
from pagemill.ops.trace import Tensor, Trace
from pagemill.quantization.binder import WeightBinder
from pagemill.runner.recorded_shapes import ShapeRecorder
from pagemill.weights import ModelSource, WeightsError

# Names begin with these in the checkpoint, and with `model.` in the part.
PREFIX, BEHIND = "text.", "model."
WHOLE = BEHIND + PREFIX

ALL = Part(0, 4, 4)
TENSORS = {
    "matrix.weight": (4, 4),
    "matrix.bias": (4,),
    "table": (3, 4),
    "patches.weight": (4, 1, 2, 2),
    "taps.weight": (4, 1, 2),
    "experts.stack": (4, 4, 4),
    "experts.stack_bias": (4, 4),
    "experts.0.up.weight": (4, 4),
    "experts.1.up.weight": (4, 4),
    "experts.down.0.weight": (4, 4),
    "experts.down.1.weight": (4, 4),
    **{f"norm.{part}": (4,) for part in ("weight", "bias", "running_mean", "running_var")},
    "attn.k_scale": (1,),
    "attn.v_scale": (1,),
    "one": (1,),
}

CALLS: dict[str, Callable[[Weights, str], Any]] = {
    "has": lambda w, p: (w.has(f"{p}matrix.weight"), w.has(f"{p}missing")),
    "claim": lambda w, p: w.claim(f"{p}norm.bias"),
    "linear": lambda w, p: (
        w.linear(f"{p}matrix", (4, 4), rows=Part(0, 2, 4)),
        w.linear(f"{p}matrix", (4, 4), transposed=True),
    ),
    "matrix": lambda w, p: w.matrix(f"{p}matrix.weight", (4, 4), columns=Part(0, 2, 4)),
    "turned_matrix": lambda w, p: w.turned_matrix(f"{p}matrix.weight", (4, 4)),
    "stack": lambda w, p: (
        w.stack(f"{p}experts", "up", (2, 4, 4), matrices=Part(0, 1, 2)),
        w.stack(f"{p}experts", "stack", (4, 4, 4)),
    ),
    "turned_stack": lambda w, p: (
        w.turned_stack(f"{p}experts.stack", (4, 2, 4), stripe=Stripe(1, 2)),
        w.turned_stack(f"{p}experts.down", (2, 4, 4)),
    ),
    "turned_vectors": lambda w, p: w.turned_vectors(
        f"{p}experts.stack_bias", (4, 2), stripe=Stripe(1, 2)
    ),
    "adapted": lambda w, p: w.adapted(f"{p}matrix", *_rows(w)),
    "adapted_embedding": lambda w, p: w.adapted_embedding(f"{p}matrix", _ids(w), _rows(w)[1], 4),
    "adapted_experts": lambda w, p: w.adapted_experts(_experts(p), _ids(w, 1), *_rows(w)),
    "head_matrices": lambda w, p: w.head_matrices(
        f"{p}matrix", 4, heads=Part(0, 2, 2), rows=Part(0, 2, 2)
    ),
    "patches": lambda w, p: w.patches(f"{p}patches", (4, 1, 2, 2)),
    "reshaped": lambda w, p: w.reshaped(f"{p}patches.weight", (4, 1, 2, 2), (8, 2)),
    "column_stripe": lambda w, p: w.column_stripe(f"{p}matrix.weight", (4, 4), Stripe(1, 2)),
    "vector": lambda w, p: w.vector(f"{p}norm.weight", 4),
    "small": lambda w, p: (
        w.small(f"{p}matrix.weight", (4, 4)),
        w.small(f"{p}matrix.weight", (4, 4), row_factors=[2, 1, 1, 1], row_order=[1, 0]),
    ),
    "vectors": lambda w, p: w.vectors([f"{p}norm.weight", None], 4),
    "integers": lambda w, p: w.integers(f"{p}norm.weight", (4,)),
    "inverse_norms": lambda w, p: w.inverse_norms(f"{p}matrix.weight", (4, 4)),
    "normalized_taps": lambda w, p: w.normalized_taps(f"{p}taps", f"{p}norm", (4, 2), 1e-5),
    "exponentials": lambda w, p: w.exponentials(f"{p}norm.weight", [1, 2, 3, 4]),
    "softplus": lambda w, p: w.softplus(f"{p}norm.weight", 4, repeats=2),
    "block_elements": lambda w, p: w.block_elements(f"{p}matrix.weight"),
    "combined_rows": lambda w, p: w.combined_rows(f"{p}matrix.weight", (4, 4), [{0: 1, 2: 0.5}]),
    "number": lambda w, p: w.number(f"{p}one"),
    "kv_scales": lambda w, p: w.kv_scales(f"{p}attn"),
    "computed": lambda w, p: w.computed(
        f"{p}sum",
        (4,),
        {f"{p}matrix.weight": (4, 4), f"{p}matrix.bias": (4,)},
        lambda matrix, bias: matrix.sum(axis=1) + bias,
    ),
    "head_tables": lambda w, p: w.head_tables(
        HeadTables(
            f"{p}matrix", f"{p}table", (3, 4), [2, 0], Part(0, 2, 2), 2, 0.5, f"{p}norm", 1e-5
        )
    ),
    "constant": lambda w, p: w.constant(f"{p}frequencies", [1.0, 2.0]),
}
# Those without a name in the checkpoint.
NAMELESS = {"note", "index", "within"}


def _rows(weights: Weights) -> tuple[Tensor, Tensor]:
    return weights.trace.declared_input("x"), weights.trace.declared_input("y")


def _ids(weights: Weights, choices: int = 0) -> Tensor:
    return weights.trace.declared_input("choices" if choices else "ids")


def _experts(prefix: str) -> ExpertLayer:
    names = f"{prefix}experts", "up", f"{prefix}experts.up", "weight"
    return ExpertLayer(Part(0, 2, 2), *names, rows=ALL, features=4)


def _with_inputs(trace: Trace) -> Trace:
    trace.input("x", ACT, ("tokens", 4))
    trace.input("y", ACT, ("tokens", 4))
    trace.input("ids", "i32", ("tokens",))
    trace.input("choices", "i32", ("tokens", 1))
    return trace


@pytest.fixture(name="source", scope="module")
def _source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    path = tmp_path_factory.mktemp("model")
    tensors = {WHOLE + name: torch.ones(shape) for name, shape in TENSORS.items()}
    tensors |= {
        "matrix.weight": torch.zeros(4, 4),
        f"{WHOLE}scaled.weight": torch.ones(4, 4).to(torch.float8_e4m3fn),
    }
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    return ModelSource.open(path)


def test_every_method_with_a_name_is_called():
    methods = {name for name, value in vars(Weights).items() if callable(value)}
    assert {name for name in methods if not name.startswith("_")} == CALLS.keys() | NAMELESS


@pytest.mark.parametrize("method", CALLS)
def test_a_part_of_a_source_has_its_whole_names(source: ModelSource, method: str):
    def bound(part: Callable[[WeightBinder], Weights], prefix: str) -> tuple[Any, ...]:
        trace = _with_inputs(Trace())
        weights = WeightBinder(trace, source, None, trace.input("slots", "i32", ("tokens",)))
        result = CALLS[method](part(weights), prefix)
        return result, trace.program, weights.adapter_targets, weights._tensors.claimed()

    whole = bound(lambda weights: weights, WHOLE)
    assert bound(lambda weights: weights.within(WHOLE), "") == whole
    assert bound(lambda weights: weights.within(BEHIND).within(PREFIX), "") == whole
    assert bound(lambda weights: weights.within(PREFIX, behind=BEHIND), BEHIND) == whole


@pytest.mark.parametrize("method", CALLS)
def test_recorded_shapes_have_whole_names(method: str):
    def recorded(part: Callable[[ShapeRecorder], Weights], prefix: str) -> tuple[Any, ...]:
        weights = ShapeRecorder()
        _with_inputs(weights.trace)
        weights.linear(f"{WHOLE}matrix", (4, 4))  # for `has`
        return CALLS[method](part(weights), prefix), weights.shapes, weights.trace.program

    whole = recorded(lambda weights: weights, WHOLE)
    assert recorded(lambda weights: weights.within(WHOLE), "") == whole
    assert recorded(lambda weights: weights.within(PREFIX, behind=BEHIND), BEHIND) == whole


def test_names_without_what_is_in_front_of_a_prefix_are_the_same(source: ModelSource):
    weights = WeightBinder(Trace(), source).within(PREFIX, behind=BEHIND)
    assert weights.has("matrix.weight") and not weights.has(f"{WHOLE}matrix.weight")


def test_messages_have_whole_names(source: ModelSource):
    weights = WeightBinder(Trace(), source).within(WHOLE)
    with pytest.raises(WeightsError, match=r"the tensor 'model\.text\.missing\.weight' is missing"):
        weights.linear("missing", (4, 4))
    with pytest.raises(WeightsError, match=r"model\.text\.matrix\.weight has no row 9"):
        weights.combined_rows("matrix.weight", (4, 4), [{9: 1}])
    with pytest.raises(
        WeightsError, match=r"model\.text\.scaled\.weight .* for linear layers only"
    ):
        weights.matrix("scaled.weight", (4, 4))
