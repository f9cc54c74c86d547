"""Values of layers that a program returns beside its logits."""

from __future__ import annotations

from collections.abc import Iterable

from pagemill import ops
from pagemill.layers.stack import ALIGNED, EXPERTS, layer_values
from pagemill.models.base import ModelConfigError
from pagemill.ops.trace import Trace


def return_values(trace: Trace, option: str, kind: str, output: str, layers: Iterable[int]) -> None:
    """Returns the values of a kind from these layers of `option`, as `<output>.<layer>`.

    Raises:
        ModelConfigError: a layer has no such value.
    """
    values = layer_values(trace, kind)
    for layer in dict.fromkeys(layers):
        if layer not in values:
            known = ", ".join(map(str, sorted(values))) or "none"
            raise ModelConfigError(f"{option} names layer {layer}; layers that have it: {known}")
        trace.output(f"{output}.{layer}", values[layer])


def return_alignment(trace: Trace, heads: int) -> tuple[int, int] | None:
    """Returns what the `heads` of a model's `ModelTraits` compare as rows of tokens, [tokens,
    heads * head_dim], layer by layer; the result is (heads, head_dim), None if there are none."""
    values = layer_values(trace, ALIGNED)
    if not values:
        return None
    rows = ops.concat_all([values[layer] for layer in sorted(values)])
    trace.output("pooled", ops.pool(rows, ops.PoolKind.ALL))
    return heads, rows.width // heads


def routed_experts(trace: Trace) -> dict[int, int]:
    """The layers that choose experts, and how many each chooses for a token: all as many.

    Raises:
        ModelConfigError: there are none, or they differ.
    """
    widths = {layer: value.width for layer, value in sorted(layer_values(trace, EXPERTS).items())}
    if not widths:
        raise ModelConfigError("the model has no experts: leave out --enable-return-routed-experts")
    if len(set(widths.values())) > 1:
        raise ModelConfigError(
            "layers of the model choose different numbers of experts for a token, which"
            " --enable-return-routed-experts cannot return"
        )
    return widths
