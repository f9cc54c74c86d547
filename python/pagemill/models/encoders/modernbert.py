"""ModernBERT: rotary positions, gates, norms in front of the branches, and layers that attend to
the tokens nearby, of which some attend to all."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.norm import layer_norm
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    activation,
    flag,
    layer_types,
    make_rotary_table,
    positive_int,
)
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_POOLINGS = {"cls": "first", "mean": "mean"}


class ModernBertModel(Encoder):
    """One ModernBERT encoder."""

    base_prefix = "model."
    names = EncoderNames(
        words="embeddings.tok_embeddings",
        norm="embeddings.norm",
        last_norm="final_norm",
        layers="layers",
        qkv=("attn.Wqkv",),
        attended="attn.Wo",
        attended_norm="attn_norm",
        up=("mlp.Wi",),
        down="mlp.Wo",
        down_norm="mlp_norm",
    )
    ignored = {
        **Encoder.ignored,
        r"head\..*": "no head if vectors are pooled",
        r"decoder\..*": "the head of the training objective",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps="norm_eps")
        layers = self.sizes.layers
        types = layer_types(config, layers, (SLIDING, FULL)) or _every(config, layers)
        # Half of the tokens nearby are on each side, beside the token itself.
        window = positive_int(config, "local_attention", 128) // 2 + 1
        self.windows = [window if kind == SLIDING else 0 for kind in types]
        dim = self.sizes.head_dim
        tables = {kind: make_rotary_table(_ropes(config), dim, kind) for kind in set(types)}
        self.rotary = [tables[kind] for kind in types]
        self.typed = False
        self.gated = True
        self.bias = flag(config, "attention_bias", False)
        self.activation = activation(config, "hidden_activation", "gelu")
        self._mlp_bias = flag(config, "mlp_bias", False)
        self._norm_bias = flag(config, "norm_bias", False)
        self._head_bias = flag(config, "classifier_bias", False)
        self._head_activation = activation(config, "classifier_activation", "gelu")
        pooling = config.get("classifier_pooling", "cls")
        if not isinstance(pooling, str) or pooling not in _POOLINGS:
            raise ModelConfigError(f"classifier_pooling is {shown(pooling)}; known: cls, mean")
        self.classifier_pooling = _POOLINGS[pooling]

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return layer_norm(weights, name, x, self.sizes.norm_eps, bias=self._norm_bias)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        parts = MlpParts(self.names.up, self.names.down, bias=self._mlp_bias)
        size = self.sizes.intermediate_size
        return mlp(weights, self.prefix(layer), x, size, self.activation, parts)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if layer > 0:
            return super().layer(weights, layer, x, rotary)
        # The norm of embeddings is the first layer's.
        x = ops.add(x, self.attention(weights, layer, x, rotary))
        y = self.norm(weights, f"{self.prefix(layer)}.{self.names.down_norm}", x)
        return ops.add(x, self.feed_forward(weights, layer, y))

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        return self.classify_tokens(weights, rows, labels)

    def classify_tokens(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        x = linear(weights, "head.dense", rows, (rows.width,), bias=self._head_bias)
        x = self.norm(weights, "head.norm", ops.activation(x, self._head_activation))
        return super().classify_tokens(weights, x, labels)


def _every(config: Config, layers: int) -> tuple[str, ...]:
    """The kinds of layers by the key of the first checkpoints: every nth attends to all."""
    nth = positive_int(config, "global_attn_every_n_layers", 3)
    return tuple(SLIDING if layer % nth else FULL for layer in range(layers))


def _ropes(config: Config) -> Config:
    """A configuration with `rope_parameters`; the first checkpoints have a key for each kind."""
    if config.get("rope_parameters") is not None:
        return config
    theta = {FULL: ("global_rope_theta", 160000.0), SLIDING: ("local_rope_theta", 10000.0)}
    return {
        "max_position_embeddings": config["max_position_embeddings"],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": config.get(key, default)}
            for kind, (key, default) in theta.items()
        },
    }
