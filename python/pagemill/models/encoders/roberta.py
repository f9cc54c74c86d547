"""RoBERTa, XLM-RoBERTa and CamemBERT: BERT whose positions start behind that of padding, and whose
texts of a pair have the same token type."""

from __future__ import annotations

from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import number
from pagemill.models.encoders.encoder import Encoder, MaskedHead


class RobertaModel(Encoder):
    """One RoBERTa encoder."""

    base_prefix = "roberta."
    masked = MaskedHead("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")

    def __init__(self, config: Config) -> None:
        if config.get("position_embedding_type") == "rotary":
            raise ModelConfigError(
                'this is Jina embeddings 3, as first saved; --hf-overrides \'{"architectures":'
                ' ["JinaEmbeddingsV3Model"]}\' serves it, without its adapters for tasks'
            )
        super().__init__(config)
        self.typed = False
        self.first_position = int(number(config, "pad_token_id", 1, least=0)) + 1
