"""Scales of the KV cache in a checkpoint.

    kv_scales(tensors, "model.layers.0.self_attn")  # (0.031, 0.044)

They lie beside an attention layer, as one number or as one for each KV head, under the names that
compressed-tensors, AutoFP8 and ModelOpt write: `k_scale` and `v_scale`, `kv_scale` for both,
`k_proj.output_scale` and `v_proj.output_scale`, `k_proj.k_scale` and `v_proj.v_scale`. What
is stored times its scale is the key or value. If a layer has a scale for each head, all heads get
the largest: no key leaves the range of fp8, whose relative precision does not depend on the scale.
"""

from __future__ import annotations

import math

from pagemill.ops.trace import format_shape
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.errors import WeightsError
from pagemill.weights.read import REAL_DTYPES, read_f32

_KEYS = ("k_scale", "kv_scale", "k_proj.output_scale", "k_proj.k_scale")
_VALUES = ("v_scale", "kv_scale", "v_proj.output_scale", "v_proj.v_scale")
# Scales of queries and softmax outputs, for attention that is itself computed in 8 bits; and zero
# points of asymmetric caches.
_OTHERS = (
    *("q_scale", "prob_scale", "prob_output_scale", "q_proj.output_scale", "q_proj.q_scale"),
    *("q_zero_point", "k_zero_point", "v_zero_point"),
)
_ENDS = tuple(f".{name}" for name in {*_KEYS, *_VALUES, *_OTHERS})


def is_attention_scale(name: str) -> bool:
    """True if this tensor is a scale, or zero point, of keys, values, queries or attention
    weights."""
    return name.endswith(_ENDS)


def kv_scales(tensors: DeclaredTensors, module: str) -> tuple[float, float]:
    """The scales of keys and of values of the attention layer `module`; 1 if the checkpoint does
    not have both.

    Raises:
        WeightsError: one is not a number > 0.
    """
    names = [
        next((name for kind in kinds if tensors.has(name := f"{module}.{kind}")), None)
        for kinds in (_KEYS, _VALUES)
    ]
    keys, values = names
    if keys is None or values is None:
        return 1.0, 1.0
    return _read(tensors, keys), _read(tensors, values)


def _read(tensors: DeclaredTensors, name: str) -> float:
    location = tensors.locate(name)
    if location.dtype in REAL_DTYPES and math.prod(location.shape) == max((1, *location.shape)):
        scales = tuple(read_f32(location).reshape(-1).tolist())
        if all(0 < scale < math.inf for scale in scales):
            return max(scales)
    raise WeightsError(
        f"{tensors.path}: {name} is {location.dtype} {format_shape(location.shape)}; it must be"
        " numbers > 0: one, or one for each KV head"
    )
