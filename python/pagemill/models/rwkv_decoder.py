"""What RWKV-4, RWKV-5 and RWKV-6 have in common.

Weights: `rwkv.blocks.<i>.{ln1, attention.*, ln2, feed_forward.*}`, `rwkv.{embeddings,
blocks.0.pre_ln, ln_out}`, `head` unless tied.
"""

from __future__ import annotations

from abc import abstractmethod

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.matrix_wkv import WkvHeads
from pagemill.layers.norm import layer_norm
from pagemill.layers.stack import stack
from pagemill.models.base import (
    Config,
    ModelConfigError,
    StepInputs,
)
from pagemill.models.config_keys import number, positive_int
from pagemill.models.recurrent_model import RecurrentModel
from pagemill.ops.trace import Tensor

_FINAL_EPS = 1e-5  # of ln_out, which has no key


class RwkvDecoder(RecurrentModel):
    """One RWKV model, whose layers a family adds."""

    embedding = "rwkv.embeddings"
    head = "head"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._rescale_every = _rescale_every(config)

    @abstractmethod
    def mixer(self, weights: Weights, prefix: str, layer: int, x: Tensor) -> Tensor:
        """What stands in place of attention, of x [T, H]."""

    @abstractmethod
    def feed_forward(self, weights: Weights, prefix: str, layer: int, x: Tensor) -> Tensor:
        """The feed-forward layer, of x [T, H]."""

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = layer_norm(weights, "rwkv.blocks.0.pre_ln", self.embed(weights, inputs), self.norm_eps)
        x = stack(weights, x, self.layers, lambda i, x: self._layer(weights, i, x))
        return layer_norm(weights, "rwkv.ln_out", x, _FINAL_EPS)

    def _layer(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix = f"rwkv.blocks.{layer}"
        # The residual stream is halved every few layers, so that it fits f16, and so is what is
        # added to it.
        every = self._rescale_every
        scale = 0.5 ** (layer // every) if every > 0 else 1.0
        y = layer_norm(weights, f"{prefix}.ln1", x, self.norm_eps)
        y = self.mixer(weights, f"{prefix}.attention", layer, y)
        x = ops.add(x, ops.scale(y, scale))
        y = layer_norm(weights, f"{prefix}.ln2", x, self.norm_eps)
        y = self.feed_forward(weights, f"{prefix}.feed_forward", layer, y)
        x = ops.add(x, ops.scale(y, scale))
        return ops.scale(x, 0.5) if every > 0 and (layer + 1) % every == 0 else x


def wkv_heads(config: Config) -> WkvHeads:
    """The heads of RWKV-5 and RWKV-6. Their results are divided by `head_size_divisor` before they
    are normalized, which the norm's eps stands for.

    Raises:
        ModelConfigError: heads of `head_size` do not divide the features of attention.
    """
    width = positive_int(config, "attention_hidden_size", positive_int(config, "hidden_size"))
    size = positive_int(config, "head_size", 64)
    if width % size:
        raise ModelConfigError(f"head_size={size} does not divide {width} features of attention")
    divisor = positive_int(config, "head_size_divisor", 8)
    return WkvHeads(width // size, size, eps=1e-5 * divisor**2)


def intermediate_size(config: Config) -> int:
    """That of RWKV-5 and RWKV-6: by default 3.5 times the hidden size, in whole blocks of 32."""
    default = positive_int(config, "hidden_size") * 7 // 2 // 32 * 32
    return positive_int(config, "intermediate_size", default)


def _rescale_every(config: Config) -> int:
    """Layers after which the residual stream is halved; 0 or less for never."""
    value = number(config, "rescale_every", 6)
    if not value.is_integer():
        raise ModelConfigError(f"rescale_every must be a number of layers, it is {value:g}")
    return int(value)
