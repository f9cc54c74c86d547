"""Jina embeddings 3 without its adapters: RoBERTa with rotary positions. Also as first saved, under
the architecture of XLM-RoBERTa."""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import Defaults, make_rotary_table, number
from pagemill.models.encoders.encoder import Encoder, EncoderNames


class Jina3Model(Encoder):
    """One Jina embeddings 3 encoder."""

    base_prefix = "roberta."
    names = EncoderNames(
        norm="emb_ln",
        layers="encoder.layers",
        qkv=("mixer.Wqkv",),
        attended="mixer.out_proj",
        attended_norm="norm1",
        up=("mlp.fc1",),
        down="mlp.fc2",
        down_norm="norm2",
    )

    ignored = {
        **Encoder.ignored,
        r".*\.parametrizations\.weight\.0\.lora_[AB]": "adapters for tasks are not used",
    }

    def __init__(self, config: Config) -> None:
        config = Defaults(config, {"rope_theta": number(config, "rotary_emb_base", 2e4)})
        super().__init__(config, positions="rotary")
        self.typed = False
        table = make_rotary_table(config, self.sizes.head_dim)
        self.rotary = (table,) * self.sizes.layers
