"""RoBERTa-PreLayerNorm: RoBERTa with norms in front of the branches."""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import number
from pagemill.models.encoders.encoder import Encoder, EncoderNames, MaskedHead


class RobertaPreLayerNormModel(Encoder):
    """One RoBERTa-PreLayerNorm encoder."""

    base_prefix = "roberta_prelayernorm."
    names = EncoderNames(
        last_norm="LayerNorm",
        attended_norm="attention.LayerNorm",
        down_norm="intermediate.LayerNorm",
    )
    masked = MaskedHead("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.typed = False
        self.first_position = int(number(config, "pad_token_id", 1, least=0)) + 1
