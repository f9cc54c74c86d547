"""What the program of a model returns for the head that drafts for it."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.stack import RESULT, layer_values
from pagemill.models.base import Model, ModelConfigError
from pagemill.ops.trace import Tensor
from pagemill.quantization.binder import WeightBinder
from pagemill.weights.source import ModelSource

DRAFT_STATES = "draft_states"
"""The name of the program's output, and of the head's input and output."""
MAX_STATES = 8
"""That a projection joins: as many as ops.concat."""
PROJECTION, STATE_NORM, JOINED_NORM = "fc", "fc_norm", "input_norm"
"""Modules of a head that the program of its model has."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The linear layer `fc` of `source`, with `width` outputs, on the hidden states that enter
    `layers`, side by side; by default the third, the middle one and the third last. If `source` has
    the norms `fc_norm.<i>`, one for each of them, or `input_norm`, one for all together, they are
    normalized before, with `eps`. `between`: the states behind the model's last layer are none of
    them, as there is a norm behind it that a head may have read through."""

    source: ModelSource
    width: int
    layers: tuple[int, ...] | None = None
    eps: float = 1e-6
    between: bool = False

    def of_joined(self, weights: Weights, joined: Tensor) -> Tensor:
        """`joined` rows of states, normalized each if they are to be -> [rows, width]; `weights`
        are those of `source`."""
        if weights.has(f"{JOINED_NORM}.weight"):
            joined = norm.rms_norm(weights, JOINED_NORM, joined, self.eps)
        bias = weights.has(f"{PROJECTION}.bias")
        return linear(weights, PROJECTION, joined, (self.width,), bias=bias)


@dataclass(frozen=True, slots=True)
class DraftStates:
    """The final hidden state of each token, normalized unless the model's own MTP layer (`of_mtp`)
    reads it in front of the norm; or a `projection` of states in between."""

    projection: Projection | None = None
    of_mtp: bool = False

    def trace(self, model: Model, final: Tensor) -> Tensor:
        """[T, width], from the normalized states `final` [T, hidden size] of `model`, in the trace
        of its program.

        Raises:
            ModelConfigError: the model has no such layers.
            WeightsError: the projection is missing, or of another shape.
        """
        results = layer_values(final.trace, RESULT)
        by = self.projection
        if by is None:
            if not self.of_mtp or _reads_normalized(model):
                return final
            return results[len(results) - 1]
        entered = by.layers
        if entered is None:
            entered = (2, len(results) // 2, len(results) - 3)
        missing = [
            layer
            for layer in entered
            if layer - 1 not in results or (by.between and layer == len(results))
        ]
        if missing:
            raise ModelConfigError(
                f"{by.source.path} reads the hidden states that enter the layers"
                f" {', '.join(map(str, entered))}; the model has {len(results)} layers, and a state"
                f" in front of each from 1 on: use a head that was made for this model"
            )
        states = [results[layer - 1] for layer in entered]
        weights = WeightBinder(final.trace, by.source)
        names = [f"{STATE_NORM}.{index}" for index in range(len(states))]
        if weights.has(f"{names[0]}.weight"):
            each = zip(names, states, strict=True)
            states = [norm.rms_norm(weights, name, state, by.eps) for name, state in each]
        return by.of_joined(weights, ops.concat(*states) if len(states) > 1 else states[0])


def _reads_normalized(model: Model) -> bool:
    """Whether the MTP layer of `model`, if it has one, reads final states behind the norm."""
    from pagemill.models.draft_heads.target import decoder_of  # only with an MTP layer

    decoder = decoder_of(model)
    return decoder is None or decoder.mtp is None or decoder.mtp.reads_normalized
