"""A model whose layers are state-space mixers alone.

Weights: `backbone.layers.<i>.{norm, mixer.*}`, `backbone.{embeddings,norm_f}`, `lm_head` unless
tied.
"""

from __future__ import annotations

from abc import abstractmethod

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.stack import stack
from pagemill.models.base import StepInputs
from pagemill.models.recurrent_model import RecurrentModel
from pagemill.ops.trace import Tensor


class StateSpaceModel(RecurrentModel):
    """A `RecurrentModel` with one branch a layer. A subclass has the mixer."""

    embedding = "backbone.embeddings"

    @abstractmethod
    def mixer(self, weights: Weights, name: str, x: Tensor, layer: int) -> Tensor:
        """x [T, H] -> [T, H]: the mixer `name` of a layer."""

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = self.embed(weights, inputs)
        x = stack(weights, x, self.layers, lambda i, x: self._layer(weights, i, x))
        return norm.rms_norm(weights, "backbone.norm_f", x, self.norm_eps)

    def _layer(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix = f"backbone.layers.{layer}"
        normed = norm.rms_norm(weights, f"{prefix}.norm", x, self.norm_eps)
        return ops.add(x, self.mixer(weights, f"{prefix}.mixer", normed, layer))
