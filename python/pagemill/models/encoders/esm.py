"""ESM-1b and ESM-2, of proteins: norms in front of the branches; ESM-2 has rotary positions.

In training some tokens were masked, and their embeddings zeros, for which those of the others are
scaled. Tokens of a request are taken for tokens that are not masked.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import flag, make_rotary_table, number, refuse
from pagemill.models.encoders.encoder import Encoder, EncoderNames, MaskedHead
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_SEEN_IN_TRAINING = 1 - 0.15 * 0.8  # the share of tokens that were not masked, of all models


class EsmModel(Encoder):
    """One ESM encoder."""

    base_prefix = "esm."
    names = EncoderNames(
        norm="embeddings.layer_norm",
        last_norm="encoder.emb_layer_norm_after",
        attended_norm="attention.LayerNorm",
        down_norm="LayerNorm",
    )
    ignored = {
        **Encoder.ignored,
        r".*\.inv_freq": "frequencies are computed from the configuration",
        r"(.*\.)?embeddings\.position_embeddings\.weight": "those of ESM-2 are not used",
        r"(.*\.)?contact_head\..*": "contacts are not predicted",
    }
    masked = MaskedHead("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")

    def __init__(self, config: Config) -> None:
        refuse(config, "is_folding_model")
        kind = config.get("position_embedding_type") or "absolute"
        if kind not in ("absolute", "rotary"):
            raise ModelConfigError(
                f"position_embedding_type is {shown(kind)}; known: absolute, rotary"
            )
        super().__init__(config, positions=kind)
        self.typed = False
        self.activation = ActivationKind.GELU
        self._drops_tokens = flag(config, "token_dropout", False)
        self._norms_embeddings = flag(config, "emb_layer_norm_before", False)
        if kind == "rotary":
            self.rotary = (make_rotary_table(config, self.sizes.head_dim),) * self.sizes.layers
        else:
            self.first_position = int(number(config, "pad_token_id", 1, least=0)) + 1

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        sizes, names = self.sizes, self.names
        table = (sizes.vocab_size, sizes.hidden_size)
        x = embedding.embedding(weights, self.name(names.words), inputs.token_ids, table)
        if self._drops_tokens:
            x = ops.scale(x, _SEEN_IN_TRAINING)
        x = self.add_positions(weights, inputs, inputs.with_media(x))
        if not self._norms_embeddings:
            return x
        return self.norm(weights, self.name("embeddings.layer_norm"), x)
