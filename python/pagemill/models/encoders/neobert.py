"""NeoBERT: norms in front of the branches, gates, and rotary positions whose pairs are neighbours.

Weights: `encoder`, `transformer_encoder.<i>.{attention_norm, qkv, wo, ffn_norm, ffn.{w12,w3}}` with
the rows of q, k and v of one head after the other, `layer_norm`; `dense`, `classifier`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import attention, embedding, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import Renamed, make_rotary_table
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

# The activation is named by its gates, so it is not read as one of another kind.
_KEYS = {"max_position_embeddings": "max_length", "hidden_act": "hidden_act_without_gates"}
_MULTIPLE = 8  # of the features of feed-forward layers


class NeoBertModel(Encoder):
    """One NeoBERT encoder."""

    base_prefix = "model."
    names = EncoderNames(
        words="encoder",
        norm=None,
        last_norm="layer_norm",
        layers="transformer_encoder",
        attended="wo",
        attended_norm="attention_norm",
        down_norm="ffn_norm",
    )
    ignored = {
        **Encoder.ignored,
        r"(.*\.)?freqs_cis": "angles are computed from the configuration",
        r"decoder\..*": "the head of the training objective",
        r"dense\..*": "no classifier if vectors are pooled",
    }

    def __init__(self, config: Config) -> None:
        gates = config.get("hidden_act") or "swiglu"
        if not isinstance(gates, str) or gates.lower() != "swiglu":
            raise ModelConfigError(f"hidden_act is {shown(gates)}; known: swiglu")
        config = Renamed(config, _KEYS, {"max_position_embeddings": 1024})
        super().__init__(config, eps="norm_eps")
        self.typed = False
        self.activation = ActivationKind.SILU
        features = 2 * self.sizes.intermediate_size // 3
        self._features = -(-features // _MULTIPLE) * _MULTIPLE
        table = make_rotary_table(config, self.sizes.head_dim)
        self.rotary = (table,) * self.sizes.layers
        self.interleaved = True

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        table = (self.sizes.vocab_size, self.sizes.hidden_size)
        x = embedding.embedding(weights, self.name(self.names.words), inputs.token_ids, table)
        return inputs.with_media(x)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.rms_norm(weights, name, x, self.sizes.norm_eps)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        sizes, prefix = self.sizes, self.prefix(layer)
        shape = AttentionShape(sizes.heads, sizes.heads, sizes.head_dim, self.attention_scale)
        shape = attention.divide(weights, shape, f"{prefix}.wo")
        q, k, v = attention.project_by_head(weights, f"{prefix}.qkv", x, shape)
        if rotary is not None:
            q, k = rotary(q, k)
        attended = attention.attend_both_ways(q, k, v, shape)
        return attention.output(weights, f"{prefix}.wo", attended, shape, x.width)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        parts = MlpParts(("w12",), "w3")
        name = f"{self.prefix(layer)}.ffn"
        return mlp(weights, name, x, self._features, self.activation, parts)

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = ("dense", "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)
