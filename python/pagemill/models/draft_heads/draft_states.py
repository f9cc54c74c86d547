"""What the program of a model returns for the head that drafts for it."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.linear import linear
from pagemill.layers.stack import RESULT, layer_values
from pagemill.models.base import ModelConfigError
from pagemill.ops.trace import Tensor
from pagemill.quantization.binder import WeightBinder
from pagemill.weights.source import ModelSource

DRAFT_STATES = "draft_states"
"""The name of the program's output, and of the head's input and output."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The linear layer `module` of `source`, with `width` outputs, on the hidden states that enter
    `layers`, side by side; by default the third, the middle one and the third last."""

    source: ModelSource
    width: int
    layers: tuple[int, ...] | None = None
    module: str = "fc"


@dataclass(frozen=True, slots=True)
class DraftStates:
    """The final hidden state of each token, normalized; or a `projection` of states in between."""

    projection: Projection | None = None

    def trace(self, final: Tensor) -> Tensor:
        """[T, width], from `final` [T, hidden size], in the trace of the model's program.

        Raises:
            ModelConfigError: the model has no such layers.
            WeightsError: the projection is missing, or of another shape.
        """
        by = self.projection
        if by is None:
            return final
        results = layer_values(final.trace, RESULT)
        entered = by.layers
        if entered is None:
            entered = (2, len(results) // 2, len(results) - 3)
        missing = [layer for layer in entered if layer - 1 not in results]
        if missing:
            raise ModelConfigError(
                f"{by.source.path} reads the hidden states that enter the layers"
                f" {', '.join(map(str, entered))}; the model has {len(results)} layers, and a state"
                f" in front of each from 1 on: use a head that was made for this model"
            )
        states = [results[layer - 1] for layer in entered]
        joined = ops.concat(*states) if len(states) > 1 else states[0]
        weights = WeightBinder(final.trace, by.source)
        bias = weights.has(f"{by.module}.bias")
        return linear(weights, by.module, joined, (by.width,), bias=bias)
