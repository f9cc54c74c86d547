"""EuroBERT: Llama whose tokens attend to those before and after them.

Weights as Llama's, and those of classifiers `dense` and `classifier`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import mlp
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import make_rotary_table, positive_int, refuse
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_POOLINGS = {"bos": "first", "mean": "mean", "late": "mean"}


class EuroBertModel(Encoder):
    """One EuroBERT encoder."""

    base_prefix = "model."
    names = EncoderNames(
        words="embed_tokens",
        last_norm="norm",
        layers="layers",
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        attended="self_attn.o_proj",
        attended_norm="input_layernorm",
        down_norm="post_attention_layernorm",
    )
    ignored = {**Encoder.ignored, r"dense\..*": "no classifier if vectors are pooled"}

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps="rms_norm_eps")
        refuse(config, "attention_bias", "mlp_bias")
        heads, dim = self.sizes.heads, self.sizes.head_dim
        if positive_int(config, "num_key_value_heads", heads) != heads:
            raise ModelConfigError("num_key_value_heads must be num_attention_heads in EuroBERT")
        if positive_int(config, "head_dim", dim) != dim:
            raise ModelConfigError("head_dim must be hidden_size / num_attention_heads in EuroBERT")
        self.typed = False
        self.bias = False
        self.rotary = (make_rotary_table(config, dim),) * self.sizes.layers
        pooling = config.get("classifier_pooling", "late")
        self._pools_late = pooling == "late"
        if not isinstance(pooling, str) or pooling not in _POOLINGS:
            raise ModelConfigError(
                f"classifier_pooling is {shown(pooling)}; known: {', '.join(_POOLINGS)}"
            )
        self.classifier_pooling = _POOLINGS[pooling]

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        table = (self.sizes.vocab_size, self.sizes.hidden_size)
        return embedding.embedding(weights, self.name(self.names.words), inputs.token_ids, table)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.rms_norm(weights, name, x, self.sizes.norm_eps)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        size = self.sizes.intermediate_size
        return mlp(weights, f"{self.prefix(layer)}.mlp", x, size, self.activation)

    def before_pooling(self, weights: Weights, hidden: Tensor) -> Tensor:
        # The mean of the logits of tokens is the logits of the mean of what the last layer reads.
        if not self._pools_late:
            return hidden
        x = linear(weights, "dense", hidden, (hidden.width,), bias=True)
        return ops.activation(x, ops.ActivationKind.GELU)

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        if self._pools_late:
            return self.classify_tokens(weights, rows, labels)
        return self.classify_by(
            weights, rows, labels, ops.ActivationKind.GELU, ("dense", "classifier")
        )
