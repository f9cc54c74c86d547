"""The transformer layers that CLIP's and SigLIP's vision towers share.

Weights: `encoder.layers.<i>.{layer_norm1, self_attn.{q,k,v,out}_proj, layer_norm2,
mlp.{fc1,fc2}}`, all with biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import activation, as_list, epsilon, layer_count, positive_int
from pagemill.models.vision.margin import MarginColumns, attend_beside_margin
from pagemill.ops.concat import MAX_INPUTS as MAX_CONCAT
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]

_MODULES = (
    "layer_norm1",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.out_proj",
    "layer_norm2",
    "mlp.fc1",
    "mlp.fc2",
)


class VisionLayers:
    """The layers of one tower, in which each row of an image attends to all of them. `qkv` are the
    linear layers of queries, keys and values, or the one of all."""

    qkv: Sequence[str] = ("q_proj", "k_proj", "v_proj")

    def __init__(self, config: Config, *, eps: float, hidden_act: str) -> None:
        """`eps` and `hidden_act` are the defaults of the tower's kind."""
        self.hidden_size = positive_int(config, "hidden_size")
        self.count = layer_count(config)
        self.eps = epsilon(config, "layer_norm_eps", eps)
        self.intermediate = positive_int(config, "intermediate_size")
        self._activation = activation(config, "hidden_act", hidden_act)
        heads = positive_int(config, "num_attention_heads")
        head_dim, rest = divmod(self.hidden_size, heads)
        if rest:
            raise ModelConfigError(f"{heads} heads cannot share {self.hidden_size} features")
        self.shape = attention.AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5)

    def hidden(
        self,
        weights: Weights,
        x: Tensor,
        depths: Sequence[int],
        rotary: Rotary | None = None,
        margin: MarginColumns | None = None,
    ) -> Tensor:
        """x [T, hidden] -> what is behind so many layers, for each depth side by side: [T,
        len(depths) * hidden]. Depth 0 is x itself. Queries and keys rotate by `rotary` if there is
        one, and have `margin` behind each head (margin.py)."""

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if margin is not None:
                return attend_beside_margin(q, k, v, self.shape, rotary, margin)
            if rotary is not None:
                q, k = rotary(q, k)
            return attention.attend_both_ways(q, k, v, self.shape)

        states = [x]
        for layer in range(max(depths)):
            states.append(self.layer(weights, layer, states[-1], attend, flat=margin is not None))
        selected = [states[depth] for depth in depths]
        return selected[0] if len(selected) == 1 else ops.concat(*selected)

    def layer(
        self, weights: Weights, layer: int, x: Tensor, attend: Attend, *, flat: bool = False
    ) -> Tensor:
        """x [N, hidden] -> [N, hidden], what is behind one layer. `attend` and `flat` are those of
        `attention`."""
        prefix = f"encoder.layers.{layer}"
        y = norm.layer_norm(weights, f"{prefix}.layer_norm1", x, self.eps)
        x = ops.add(x, self.attention(weights, f"{prefix}.self_attn", y, attend, flat=flat))
        y = norm.layer_norm(weights, f"{prefix}.layer_norm2", x, self.eps)
        return ops.add(x, self.feed_forward(weights, f"{prefix}.mlp", y))

    def feed_forward(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        """x [N, hidden] -> [N, hidden], by the feed-forward layer of this name."""
        y = linear(weights, f"{name}.fc1", x, (self.intermediate,), bias=True)
        y = ops.activation(y, self._activation)
        return linear(weights, f"{name}.fc2", y, (self.hidden_size,), bias=True)

    def attention(
        self, weights: Weights, name: str, x: Tensor, attend: Attend, *, flat: bool = False
    ) -> Tensor:
        """x [N, hidden] -> [N, hidden], by the attention of this name. `attend` makes [N, hidden]
        of queries, keys and values [N, heads, head_dim], or if they are `flat`, [N, hidden]."""
        hidden, names = self.hidden_size, [f"{name}.{part}" for part in self.qkv]
        if flat:
            q, k, v = (linear(weights, each, x, (hidden,), bias=True) for each in names)
        else:
            q, k, v = attention.project_qkv(weights, names, x, self.shape, bias=True)
        return linear(weights, f"{name}.out_proj", attend(q, k, v), (hidden,), bias=True)

    def claim_rest(self, weights: Weights, layers: int) -> None:
        """Marks the layers after the first `layers` as used: nothing reads their results."""
        for layer in range(layers, self.count):
            for module in _MODULES:
                weights.claim(f"encoder.layers.{layer}.{module}.weight")
                weights.claim(f"encoder.layers.{layer}.{module}.bias")


def feature_depths(config: Config, default: Sequence[int], layers: int) -> list[int]:
    """Numbers of tower layers whose results are used. `vision_feature_layer` counts the embeddings
    as 0, or from the end.

    Raises:
        ModelConfigError: there is no such layer, or there are too many of them.
    """
    key = "vision_feature_layers" if "vision_feature_layers" in config else "vision_feature_layer"
    value: object = config.get(key, list(default))
    listed = as_list(value) or [value]
    if len(listed) > MAX_CONCAT or not all(type(layer) is int for layer in listed):
        raise ModelConfigError(
            f"{key} is {shown(value)}; it must be a layer, or a list of at most {MAX_CONCAT}"
        )
    depths = [layer if layer >= 0 else layers + 1 + layer for layer in listed]
    if not all(0 <= depth <= layers for depth in depths):
        raise ModelConfigError(f"{key} is {shown(value)}, of {layers} layers")
    return depths
