"""XLM-RoBERTa-XL and XXL: RoBERTa with norms in front of the branches, and none of embeddings."""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import number
from pagemill.models.encoders.encoder import Encoder, EncoderNames, MaskedHead


class XlmRobertaXlModel(Encoder):
    """One XLM-RoBERTa-XL encoder."""

    base_prefix = "roberta."
    names = EncoderNames(
        norm=None,
        last_norm="encoder.LayerNorm",
        attended_norm="attention.self_attn_layer_norm",
        down_norm="LayerNorm",
    )
    masked = MaskedHead("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.typed = False
        self.first_position = int(number(config, "pad_token_id", 1, least=0)) + 1
